"""What a judge makes of a GPU's times, on times that are made up: no GPU is needed for that."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from evaluators.judge.gpu_clocks import Seen, Unloaded
from evaluators.judge.gpu_cover import IDLE, CoverSearch, best_sweeps
from evaluators.judge.gpu_workload_timing import between_processes
from evaluators.judge.side import Answer

SWEEP_NS = 62_500
HIDDEN_NS = {IDLE: 0, 6: 375_000, 12: 750_000, 24: 1_500_000, 96: 6_000_000}
"""How long so many sweeps keep the GPU busy."""


def answer(elapsed_us: float, span_us: float) -> Answer:
    return Answer(status=0, elapsed_ns=round(1000 * elapsed_us), span_ns=round(1000 * span_us))


def unloaded(around_us: float, take_us: float) -> Unloaded:
    """Empty calls of a workload whose outputs the judge copies in so many us."""
    found = Unloaded(1000 * take_us)
    for sweeps in (IDLE, 6):
        for _ in range(12):
            found.add(sweeps, answer(around_us, 0))
    return found


def seen(
    first: Unloaded,
    *,
    take_us: float,
    copy_us: float,
    around_us: float,
    span_us: float = 100,
    late_us: float = 0,
    sweeps: int = 6,
    reference_us: float = 20,
) -> Seen:
    """A candidate that says `late_us` too little; the reference says `reference_us` too little."""
    found = Seen(first, 1000 * copy_us, 1000 * take_us)
    found.sweeps = sweeps
    for _ in range(16):
        found.candidate.append(round(1000 * span_us))
        found.add("call", answer(span_us + around_us + late_us, span_us))
        found.add("reference", answer(300 + reference_us, 100))
        found.add("empty reference", answer(200, 0))
        found.add("empty call", answer(around_us, 0))
    return found


def test_empty_calls_of_one_workload_stand_for_another_with_larger_outputs() -> None:
    small = unloaded(around_us=450, take_us=20)
    # 430 us are of no workload; then 220 for the judge's copy, 210 for the candidate's.
    honest = seen(small, take_us=220, copy_us=210, around_us=430 + 220 + 210)
    assert honest.beyond_first_ns == pytest.approx([0, 0, 0])
    assert not honest.is_doubtful


@pytest.mark.parametrize(("late_us", "is_doubtful"), [(40, False), (80, True)])
def test_what_goes_on_after_the_events_is_doubtful_on_any_workload(late_us: float, is_doubtful: bool) -> None:
    small = unloaded(around_us=450, take_us=20)
    late = seen(small, take_us=220, copy_us=0, around_us=430 + 220 + late_us)
    assert late.beyond_first_ns == pytest.approx([1000 * late_us] * 3)
    assert late.is_doubtful is is_doubtful


@pytest.mark.parametrize(
    ("late_us", "of_ten", "is_doubtful"),
    [(80, 7, True), (80, 4, True), (80, 2, False), (25, 7, True), (25, 4, False), (15, 9, True), (10, 10, False)],
)
def test_what_goes_on_after_the_events_of_some_calls_is_doubtful_the_sooner_the_more_calls_they_are(
    late_us: float, of_ten: int, is_doubtful: bool
) -> None:
    found = Seen(unloaded(around_us=400, take_us=20), 0, 20_000)
    found.sweeps = 6
    for number in range(40):
        found.candidate.append(100_000)
        found.add("call", answer(500 + (late_us if number % 10 < of_ten else 0), 100))
        found.add("empty call", answer(400, 0))
    assert found.is_doubtful is is_doubtful


@pytest.mark.parametrize(("late_us", "is_doubtful"), [(39, True), (20, False)])
def test_what_one_call_of_each_block_hides_counts_by_half(late_us: float, is_doubtful: bool) -> None:
    found = Seen(unloaded(around_us=400, take_us=20), 0, 20_000)
    found.sweeps = 6
    for number in range(40):
        found.candidate.append(100_000)
        # As in A B, B A: of the first block nothing, so that fewer than half of the calls are late.
        found.add("call", answer(500 + (late_us if number % 2 and number > 1 else 0), 100))
        found.add("empty call", answer(400, 0))
    assert found.is_doubtful is is_doubtful


def test_a_host_that_keeps_every_process_waiting_now_and_then_raises_no_doubt() -> None:
    found = Seen(unloaded(around_us=400, take_us=20), 0, 20_000)
    found.sweeps = 6
    for number in range(40):
        found.candidate.append(100_000)
        found.add("call", answer(500 + (300 if number % 4 == 0 else 0), 100))
        found.add("empty call", answer(400 + (250 if number % 4 == 1 else 0), 0))
    assert not found.is_doubtful


def test_pairs_that_are_run_again_count_and_those_before_do_not() -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(first, take_us=20, copy_us=0, around_us=400, late_us=80)
    assert found.is_doubtful
    found.second.append(1)
    found.repeat()
    assert [found.candidate, found.reference, found.second] == [[], [], []]
    found.candidate.append(120_000)
    for _ in range(2):
        found.add("call", answer(520, 120))
        found.add("empty call", answer(400, 0))
    assert not found.is_doubtful
    assert found.repeats == 1


@pytest.mark.parametrize(
    ("late_us", "added_us"),
    [(11, 0), (12 + 20, 0), (12 + 20 + 30, 30), (12 + 20 + 50, 50)],
)
def test_what_a_call_on_an_idle_gpu_hides_beyond_the_references_is_added_to_its_time(
    late_us: float, added_us: float
) -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=late_us + 3, sweeps=IDLE)
    assert not found.is_doubtful
    assert found.added_share * 500 == pytest.approx(added_us)


def test_what_a_long_reference_exceeds_its_events_by_is_no_room_for_a_short_candidate() -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(
        first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=15 + 50 + 30, sweeps=IDLE, reference_us=400
    )
    assert found.added_share * 500 == pytest.approx(30)


def test_of_a_call_on_an_idle_gpu_no_more_than_a_fifth_is_added() -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=15 + 20 + 101, sweeps=IDLE)
    assert found.is_doubtful


def test_behind_sweeps_nothing_is_added_and_nothing_allowed() -> None:
    first = unloaded(around_us=400, take_us=20)
    late, punctual = (
        seen(first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=late_us) for late_us in (16, 14)
    )
    assert late.is_doubtful
    assert not punctual.is_doubtful
    assert punctual.added_share == 0


@pytest.mark.parametrize(
    ("kernels_us", "launches_us", "sweeps"),
    [
        (100, 50, 6),
        (100, 240, 6),
        (100, 370, 12),  # 375 us would hide it, but only just
        (100, 490, 12),
        (100, 900, 24),
        (100, 1400, 24),  # no more would be over before a turn of the GPU is
        (4000, 3900, 6),  # the first kernel begins while the others are launched
        (30_000, 5000, IDLE),
        (100, 50_000, IDLE),
    ],
)
def test_as_few_sweeps_are_taken_as_hide_all_launches_with_room_to_spare(
    kernels_us: int, launches_us: int, sweeps: int
) -> None:
    def span_ns(level: int) -> int:
        return max(1000 * kernels_us, 1000 * launches_us - HIDDEN_NS[level])

    assert best_sweeps(span_ns, SWEEP_NS) == sweeps


def test_no_more_is_tried_once_it_is_known_to_be_enough() -> None:
    tried: list[int] = []

    def span_ns(level: int) -> int:
        tried.append(level)
        return 100_000

    assert best_sweeps(span_ns, SWEEP_NS) == 6
    assert set(tried) == {IDLE, 96, 6}


def test_what_was_best_on_one_workload_is_tried_first_on_the_next_and_in_fewer_calls() -> None:
    search, tried = CoverSearch(SWEEP_NS), list[int]()

    def launching_for(launches_us: int) -> Callable[[int], int]:
        def span_ns(level: int) -> int:
            tried.append(level)
            return max(100_000, 1000 * launches_us - HIDDEN_NS[level])

        return span_ns

    assert search.best_for(launching_for(400)) == 12
    tried.clear()
    assert search.best_for(launching_for(240)) == 12
    assert tried == [IDLE, IDLE, 96, 96, 12, 12, 12, 12]


def test_one_call_in_which_a_launch_came_too_late_takes_more_sweeps() -> None:
    late = iter([100_000, 100_000, 180_000, 100_000])
    assert best_sweeps(lambda level: next(late) if level == 6 else 100_000, SWEEP_NS) == 12


def test_a_process_that_wakes_late_behind_few_sweeps_is_timed_behind_more() -> None:
    """As if the GPU were idle: three of four calls began when the sweeps were over."""
    woken_late = iter([41_000, 41_000, 10_000, 41_000])
    spans = {IDLE: 41_000, 12: 10_000, 96: 10_000}
    assert best_sweeps(lambda level: next(woken_late) if level == 6 else spans[level], SWEEP_NS) == 12


@pytest.mark.parametrize("kernels_us", [5, 250, 4000])
@pytest.mark.parametrize("noise_us", [0, 30, 300])
def test_a_call_that_waits_for_the_gpu_in_its_midst_waits_for_no_sweeps(kernels_us: int, noise_us: int) -> None:
    noise = itertools.cycle((0, 0, 1000 * noise_us, 0))
    turn_ns = 1_500_000

    def span_ns(level: int) -> int:
        return 1000 * kernels_us + max(0, HIDDEN_NS[level] - turn_ns) + next(noise)

    assert best_sweeps(span_ns, SWEEP_NS) == IDLE


@pytest.mark.parametrize(("latency_us", "share"), [(1000.0, 0.0031), (100.0, 0.004), (5.0, 0.023), (0.01, 1.003)])
def test_processes_differ_by_a_share_of_a_call_and_short_calls_by_more(latency_us: float, share: float) -> None:
    assert between_processes(latency_us) == pytest.approx(share)
