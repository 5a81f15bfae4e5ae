"""What `ksearch eval --profile` prints: what the GPU does in a call, kernel by kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ksearch_async.kernel_table import TITLES, headline, kernel_rows, left_out
from messages.profiles import WorkloadProfile

_INDENT = " " * 11


def profile_objects(profile: Sequence[WorkloadProfile]) -> list[dict[str, Any]]:
    """Return what `--json` prints of a profile: one object per workload."""
    return [msgspec.to_builtins(one) | {"idle_share": one.idle_share, "own_share": one.own_share} for one in profile]


def profile_table(profile: Sequence[WorkloadProfile]) -> list[str]:
    """Return what is printed of what is known: a line and a table for each workload."""
    return [line for one in profile for line in _lines(one)]


def _lines(profile: WorkloadProfile) -> Iterator[str]:
    yield f"profile    {headline(profile)}"
    rows = [TITLES, *kernel_rows(profile)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *numbers, name in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)]
        yield _INDENT + "  ".join([*cells, name])
    if rest := left_out(profile):
        yield _INDENT + rest
