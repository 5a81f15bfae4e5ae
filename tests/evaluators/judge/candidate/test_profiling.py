"""What a candidate's process recorded is put together, and what is no record is told."""

from __future__ import annotations

import msgspec
import pytest

from evaluators.hardware.vendors.nvidia.activities import Activity
from evaluators.judge.candidate.profiling import Multiprocessors, ProfileError, activities_in, summarize
from evaluators.runners.base import PROFILED

H200 = Multiprocessors(count=132, threads=2048, registers=65536, shared_bytes=233_472, blocks=32)
BUILT = b"\x00_Z7doubledPKf\x00def softmax(x):"


def kernel(name: str, begun_us: float, took_us: float, **more: object) -> Activity:
    begun_ns = round(begun_us * 1000)
    plain = Activity(name, name, begun_ns, begun_ns + round(took_us * 1000), (264, 1, 1), (256, 1, 1), 32)
    return plain._replace(**more)  # type: ignore[arg-type]


def test_times_are_medians_over_calls_and_work_side_by_side_counts_once() -> None:
    calls = [
        [
            kernel("softmax", 0, took_us),
            kernel("softmax", took_us, took_us),
            kernel("other", took_us / 2, took_us),
            last,
        ]
        for took_us, last in (
            (10, kernel("end", 30, 10)),
            (100, kernel("end", 300, 100)),
            (12, kernel("end", 36, 12)),
        )
    ]
    profile = summarize("large", calls, H200, BUILT)
    assert (profile.workload, profile.span_us, profile.busy_us) == ("large", 48.0, 36.0)
    assert profile.idle_share == pytest.approx(0.25)
    assert [(one.name, one.launches, one.time_us) for one in profile.kernels] == [
        ("softmax", 2, 24.0),
        ("other", 1, 12.0),
        ("end", 1, 12.0),
    ]
    assert profile.own_share == pytest.approx(0.5)


def test_a_kernel_without_a_name_is_nobodys() -> None:
    assert not summarize("", [[kernel("", 0, 1)]], H200, BUILT).kernels[0].is_own


@pytest.mark.parametrize(
    ("name", "told", "is_own"),
    [
        ("_Z7doubledPKf", "doubled(float const*)", True),
        ("softmax", "softmax", True),
        ("_ZN2at6native4copyEv", "void at::native::copy<(anonymous namespace)::A>(int, void (*)(float))", False),
        ("(copy)", "(copy)", False),
    ],
)
def test_a_kernel_is_the_candidates_own_if_it_stands_in_what_was_built(name: str, told: str, is_own: bool) -> None:
    block = (0, 0, 0) if name == "(copy)" else (256, 1, 1)
    (found,) = summarize("", [[kernel(name, 0, 1, told=told, block=block)]], H200, BUILT).kernels
    assert found.is_own is is_own
    assert found.name == told.removeprefix("void ").removesuffix("(float const*)").removesuffix(
        "(int, void (*)(float))"
    )


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "occupancy", "blocks"),
    [
        (256, 32, 0, 1.0, 8),  # as many threads as there can be
        (256, 204, 221_184, 0.125, 1),  # one block for want of shared memory
        (128, 128, 0, 0.25, 4),  # registers: 128 * 128 are a quarter of them
        (32, 16, 0, 0.5, 32),  # no more blocks than there can be
        (100, 16, 0, 16 * 100 / 2048, 16),  # four warps, the last one not full
        (256, 300, 300_000, 0.0, 0),  # cannot be, whatever the record says
    ],
)
def test_how_well_a_kernel_fills_the_gpu(
    threads: int, registers: int, shared_bytes: int, occupancy: float, blocks: int
) -> None:
    one = kernel("k", 0, 1, block=(threads, 1, 1), registers=registers, shared_bytes=shared_bytes)
    (found,) = summarize("", [[one]], H200, b"").kernels
    assert found.occupancy == pytest.approx(occupancy)
    assert found.waves == pytest.approx(264 / (132 * blocks) if blocks else 0.0)


def test_the_last_record_of_what_was_printed_is_read() -> None:
    record = [kernel("right", 1, 2)]
    printed = b"hello\n" + PROFILED + b"[]\n" + b"\n" + PROFILED + msgspec.json.encode(record) + b"\nand more\n"
    assert activities_in(printed) == record


@pytest.mark.parametrize(
    ("printed", "complaint"),
    [
        (b"", "nothing was recorded$"),
        (b"cuptiActivityEnable fails with error 15\n", "nothing was recorded: cuptiActivityEnable fails"),
        (PROFILED + b"[[1, 2]]\n", "cannot be read"),
        (PROFILED + b'[["a"', "cannot be read"),
        (PROFILED + b'[["\\xff"]]', "cannot be read"),
        (PROFILED + msgspec.json.encode([kernel("k", 1, 1, shared_bytes=-1024)]), "impossible"),
        (PROFILED + b'[["a", "a", 0, 100000000000000000000]]', "impossible"),
        (PROFILED + msgspec.json.encode([kernel("k", 1, -1)]), "impossible"),
        (PROFILED + b'[["\\ud800", "k", 1, 2]]', "cannot be read"),
        (PROFILED + msgspec.json.encode([kernel("k", 1, 1, registers=-1)]), "impossible"),
        (PROFILED + msgspec.json.encode([kernel("k", 1, 1, grid=(1, 1, 1 << 31))]), "impossible"),
        (PROFILED + msgspec.json.encode([kernel("k", 1, 1e10)]), "impossible"),
        (PROFILED + msgspec.json.encode([kernel("k", 1, 1)] * 20_001), "more than 20000 things"),
    ],
)
def test_what_is_no_record_is_told(printed: bytes, complaint: str) -> None:
    with pytest.raises(ProfileError, match=complaint):
        activities_in(printed)


def test_of_many_kernels_the_longest_are_kept_and_names_stay_on_their_line() -> None:
    many = [kernel(f"k{number}", 2 * number, 1 + number / 100) for number in range(100)]
    profile = summarize("", [[*many, kernel("evil", 300, 9, told="evil\n# A heading\tof its own")]], H200, b"")
    assert (len(profile.kernels), profile.left_out) == (24, 77)
    assert profile.kernels_us == pytest.approx(9 + sum(1 + number / 100 for number in range(100)))
    mixed = summarize("", [[*many, *(kernel("softmax", 300 + 9 * at, 9) for at in range(9))]], H200, BUILT, most=4)
    assert (len(mixed.kernels), mixed.left_out) == (4, 97)
    assert mixed.own_share == pytest.approx(81 / (81 + 149.5))
    assert [one.name for one in profile.kernels[:3]] == ["evil # A heading of its own", "k99", "k98"]


def test_a_call_that_has_the_gpu_do_nothing_has_no_profile() -> None:
    with pytest.raises(ProfileError, match="did nothing"):
        summarize("", [[kernel("k", 0, 1)], []], H200, b"")


def test_what_took_no_time_by_the_clock_is_left_out() -> None:
    (found,) = summarize("", [[kernel("k", 0, 1), kernel("quick", 2, 0)]], H200, b"").kernels
    assert found.name == "k"
    assert activities_in(PROFILED + msgspec.json.encode([kernel("quick", 2, 0)]))


def test_kernels_that_most_calls_lack_are_left_out() -> None:
    calls = [[kernel("often", 0, 5), kernel(f"once{number}", 5, 9)] for number in range(3)]
    assert [one.name for one in summarize("", calls, H200, b"").kernels] == ["often"]
    with pytest.raises(ProfileError, match="in common"):
        summarize("", [[kernel(name, 0, 1)] for name in "abc"], H200, b"")
