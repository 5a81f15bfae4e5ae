"""What a GPU does in a call, kernel by kernel, in words and rows: for the terminal and for pages."""

from __future__ import annotations

from messages.profiles import ProfiledKernel, WorkloadProfile

TITLES = (
    *("share", "us", "launches", "blocks", "threads", "registers", "shared", "local", "occupancy", "waves", "of"),
    "kernel",
)
_SMALL = 0.005
"""Share of kernels that are only counted."""
_NAME_CHARACTERS = 100


def headline(profile: WorkloadProfile) -> str:
    """Say in a sentence how long a call takes, and whose kernels take that."""
    where = f"{profile.workload}: " if profile.workload else ""
    whose = "all of it" if profile.own_share > 1 - _SMALL else f"{profile.own_share:.0%} of it"
    return (
        f"{where}{profile.span_us:.1f} us from the first kernel to the last, the GPU idle for "
        f"{profile.idle_share:.0%}; {whose} in the candidate's own kernels"
    )


def kernel_rows(profile: WorkloadProfile) -> list[tuple[str, ...]]:
    """Return a row of cells under `TITLES` for each kernel that matters, the longest first."""
    total_us = profile.kernels_us
    return [_cells(kernel, total_us) for kernel in profile.kernels if kernel.time_us >= _SMALL * total_us]


def left_out(profile: WorkloadProfile) -> str:
    """Say how many kernels have no row; empty if none."""
    shown = kernel_rows(profile)
    count = profile.left_out + len(profile.kernels) - len(shown)
    rest_us = profile.kernels_us - sum(kernel.time_us for kernel in profile.kernels[: len(shown)])
    share = max(rest_us, 0.0) / profile.kernels_us if profile.kernels_us else 0.0
    return f"and {count} more, {share:.1%} of it together" if count else ""


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
