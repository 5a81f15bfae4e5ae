"""Describes a profiled call for a model: the kernels that take the time, and their occupancies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from messages.verdicts import ProfiledKernel, WorkloadProfile

_WORKLOADS_SHOWN, _KERNELS_SHOWN = 3, 6
_SMALL = 0.02
"""Share of a call's time below which a kernel is left out."""
_NAME_CHARACTERS = 80


def told_of(profile: Sequence[WorkloadProfile]) -> tuple[WorkloadProfile, ...]:
    """Return the part of a profile for models."""
    longest = sorted(profile, key=lambda one: -one.span_us)[:_WORKLOADS_SHOWN]
    return tuple(msgspec.structs.replace(one, kernels=one.kernels[:_KERNELS_SHOWN]) for one in longest)


def describe_profile(profile: Sequence[WorkloadProfile]) -> str:
    """Return the text; empty if nothing is known. Of several workloads it describes the longest."""
    return "\n\n".join("\n".join(_lines(one)) for one in told_of(profile))


def _lines(profile: WorkloadProfile) -> Iterator[str]:
    where = f" on the workload {profile.workload!r}" if profile.workload else ""
    yield (
        f"What the GPU does in one call of it{where}: {profile.span_us:.1f} us from the first kernel to the last, idle "
        f"for {profile.idle_share:.0%} of that."
    )
    total_us = profile.kernels_us
    large = [kernel for kernel in profile.kernels if kernel.time_us > _SMALL * total_us]
    for kernel in large:
        yield f"- {kernel.time_us / total_us:.0%} {_kernel(kernel)}"


def _kernel(kernel: ProfiledKernel) -> str:
    whose = "" if kernel.is_own or not any(kernel.block) else " (a library's)"
    launches = "1 launch" if kernel.launches == 1 else f"{kernel.launches} launches"
    told = [f"{kernel.name[:_NAME_CHARACTERS]}{whose}: {kernel.time_us:.1f} us in {launches}"]
    if any(kernel.block):
        blocks, threads = (
            "x".join(map(str, sizes)).removesuffix("x1").removesuffix("x1") for sizes in (kernel.grid, kernel.block)
        )
        told.append(f"{blocks} block{'s' if blocks != '1' else ''} of {threads} threads, {kernel.waves:.1f} waves")
        told.append(f"{kernel.registers} registers, {kernel.shared_bytes} bytes of shared memory a block")
        told.append(f"occupancy at most {kernel.occupancy:.0%}")
    if kernel.local_bytes:
        told.append(f"{kernel.local_bytes} bytes of local memory a thread (spilled registers, or arrays)")
    return "; ".join(told)
