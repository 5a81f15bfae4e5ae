"""What `ksearch eval --profile` prints: what the GPU does in a call, kernel by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ksearch_async.evaluation import Evaluation
from messages.profiles import ProfiledKernel, WorkloadProfile

_HEADS = (
    *("share", "us", "launches", "blocks", "threads", "registers", "shared", "local", "occupancy", "waves", "of"),
    "kernel",
)
_SMALL = 0.005
"""Share of kernels that are only counted."""
_NAME_CHARACTERS = 100
_INDENT = " " * 11


def profile_objects(evaluation: Evaluation) -> list[dict[str, Any]]:
    """Return what `--json` prints of a profile: one object per workload."""
    return [
        msgspec.to_builtins(one) | {"idle_share": one.idle_share, "own_share": one.own_share}
        for one in evaluation.profile
    ]


def profile_lines(evaluation: Evaluation) -> list[str]:
    """Return what is printed of a profile, line by line; nothing if none was asked for."""
    if evaluation.no_profile:
        return [f"profile    none: {evaluation.no_profile}"]
    return profile_table(evaluation.profile)


def profile_table(profile: Sequence[WorkloadProfile]) -> list[str]:
    """Return what is printed of what is known: a line and a table for each workload."""
    return [line for one in profile for line in _lines(one)]


def _lines(profile: WorkloadProfile) -> list[str]:
    where = f"{profile.workload}: " if profile.workload else ""
    whose = "all of it" if profile.own_share > 1 - _SMALL else f"{profile.own_share:.0%} of it"
    told = (
        f"profile    {where}{profile.span_us:.1f} us from the first kernel to the last, the GPU idle for "
        f"{profile.idle_share:.0%}; {whose} in the candidate's own kernels"
    )
    total_us = sum(kernel.time_us for kernel in profile.kernels)
    shown = [kernel for kernel in profile.kernels if kernel.time_us >= _SMALL * total_us]
    rows = [_HEADS, *(_cells(kernel, total_us) for kernel in shown)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    *numbers, _ = widths
    return [
        told,
        *(
            _INDENT
            + "  ".join([*(cell.rjust(width) for cell, width in zip(row, numbers, strict=False)), row[-1]]).rstrip()
            for row in rows
        ),
        *_left_out(len(profile.kernels) - len(shown)),
    ]


def _left_out(count: int) -> list[str]:
    return [f"{_INDENT}and {count} more, each less than {_SMALL:.1%}"] if count else []


def _cells(kernel: ProfiledKernel, total_us: float) -> tuple[str, ...]:
    share = f"{kernel.time_us / total_us:.0%}" if total_us else ""
    always = (share, f"{kernel.time_us:.1f}", str(kernel.launches))
    name = kernel.name[:_NAME_CHARACTERS]
    if not any(kernel.block):
        return (*always, "", "", "", "", "", "", "", "driver", name)
    return (
        *always,
        _product(kernel.grid),
        _product(kernel.block),
        str(kernel.registers),
        str(kernel.shared_bytes),
        str(kernel.local_bytes),
        f"{kernel.occupancy:.0%}",
        f"{kernel.waves:.1f}",
        "its own" if kernel.is_own else "library",
        name,
    )


def _product(sizes: tuple[int, int, int]) -> str:
    """Return sizes in words, without what is 1 at their end: `64x2`."""
    told = [*sizes]
    while len(told) > 1 and told[-1] == 1:
        told.pop()
    return "x".join(map(str, told))
