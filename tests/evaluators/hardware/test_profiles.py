"""What models are told of the kernels that take the time."""

from __future__ import annotations

from msgspec.structs import replace

from evaluators.hardware.profiles import describe_profile, told_of
from messages.verdicts import ProfiledKernel, WorkloadProfile

OWN = ProfiledKernel(
    name="scale",
    launches=1,
    time_us=90.0,
    is_own=True,
    grid=(2, 64, 1),
    block=(256, 1, 1),
    registers=40,
    shared_bytes=1024,
    local_bytes=16,
    occupancy=0.75,
    waves=1.5,
)


def profile(workload: str, span_us: float, *kernels: ProfiledKernel) -> WorkloadProfile:
    total_us = sum(kernel.time_us for kernel in kernels)
    return WorkloadProfile(
        workload=workload,
        span_us=span_us,
        busy_us=0.95 * span_us,
        kernels_us=total_us,
        own_us=total_us,
        kernels=kernels,
    )


def test_a_kernel_is_told_with_what_it_takes_of_the_gpu() -> None:
    assert describe_profile([profile("", 100.0, OWN)]).splitlines() == [
        "What the GPU does in one call of it: 100.0 us from the first kernel to the last, idle for 5% of that.",
        "- 100% scale: 90.0 us in 1 launch; 2x64 blocks of 256 threads, 1.5 waves; 40 registers, 1024 bytes of shared "
        "memory a block; occupancy at most 75%; 16 bytes of local memory a thread (spilled registers, or arrays)",
    ]


def test_what_is_a_librarys_or_the_drivers_is_told_as_such() -> None:
    library = replace(OWN, name="at::copy", is_own=False, launches=3, local_bytes=0, grid=(1, 1, 1))
    copy = ProfiledKernel(name="(copy)", launches=2, time_us=10.0, is_own=False)
    _, first, second = describe_profile([profile("", 100.0, library, copy)]).splitlines()
    assert first.startswith("- 90% at::copy (a library's): 90.0 us in 3 launches; 1 block of 256 threads")
    assert second == "- 10% (copy): 10.0 us in 2 launches"


def test_of_many_workloads_and_kernels_the_longest_are_told() -> None:
    others = [replace(OWN, name=f"other{number}", time_us=3.0) for number in range(7)]
    small = replace(OWN, name="small", time_us=1.0)
    shapes = [profile(f"w{us}", us, OWN) for us in (1.0, 2.0, 3.0)]
    told = describe_profile([*shapes, profile("large", 100.0, OWN, *others, small)])
    assert [line.split("'")[1] for line in told.splitlines() if "workload" in line] == ["large", "w3.0", "w2.0"]
    assert "other4" in told
    assert "other5" not in told
    assert "small" not in describe_profile([profile("", 1.0, OWN, small)])


def test_nothing_is_told_where_nothing_is_known() -> None:
    assert describe_profile(()) == ""
    assert len(describe_profile([profile("", 1.0, replace(OWN, time_us=0.0))]).splitlines()) == 1


def test_what_is_told_is_all_that_need_be_sent() -> None:
    others = [replace(OWN, name=f"other{number}", time_us=30.0 - number) for number in range(20)]
    whole = [profile(f"w{number}", 100.0 + number, OWN, *others) for number in range(9)]
    assert describe_profile(told_of(whole)) == describe_profile(whole)
    assert [(one.workload, len(one.kernels)) for one in told_of(whole)] == [("w8", 6), ("w7", 6), ("w6", 6)]
