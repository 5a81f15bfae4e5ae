"""What a judge makes of a GPU's times, on times that are made up: no GPU is needed for that."""

from __future__ import annotations

import itertools

import pytest

from evaluators.judge.candidate.side import Answer
from evaluators.judge.time.gpu import between_processes
from evaluators.judge.time.gpu_clocks import Seen, Unloaded
from evaluators.judge.time.gpu_cover import IDLE, CoverSearch, best_cover, may_wait

PROBE = 6000


def answer(elapsed_us: float, span_us: float) -> Answer:
    return Answer(status=0, elapsed_ns=round(1000 * elapsed_us), span_ns=round(1000 * span_us))


def unloaded(around_us: float, take_us: float) -> Unloaded:
    """Empty calls of a workload whose outputs the judge copies in so many us."""
    found = Unloaded(1000 * take_us)
    for cover_us in (IDLE, 400, 1500):
        for _ in range(12):
            found.add(cover_us, answer(around_us, 0))
    return found


def seen(
    first: Unloaded,
    *,
    take_us: float,
    copy_us: float,
    around_us: float,
    span_us: float = 100,
    late_us: float = 0,
    cover_us: int = 400,
    reference_us: float = 20,
    reference_cover_us: int = IDLE,
) -> Seen:
    """A candidate that says `late_us` too little; the reference says `reference_us` too little."""
    found = Seen(first, 1000 * copy_us, 1000 * take_us, reference_cover_us=reference_cover_us)
    found.cover_us = cover_us
    fill(found, around_us=around_us, span_us=span_us, late_us=late_us, reference_us=reference_us)
    return found


def fill(found: Seen, *, around_us: float, span_us: float, late_us: float, reference_us: float = 20) -> None:
    for _ in range(16):
        found.candidate.append(round(1000 * span_us))
        found.add("call", answer(span_us + around_us + late_us, span_us))
        found.add("reference", answer(300 + reference_us, 100))
        found.add("empty reference", answer(200, 0))
        found.add("empty call", answer(around_us, 0))


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
    [(80, 7, True), (80, 4, True), (80, 2, False), (25, 7, True), (25, 4, False), (16, 9, True), (10, 10, False)],
)
def test_what_goes_on_after_the_events_of_some_calls_is_doubtful_the_sooner_the_more_calls_they_are(
    late_us: float, of_ten: int, is_doubtful: bool
) -> None:
    found = Seen(unloaded(around_us=400, take_us=20), 0, 20_000)
    found.cover_us = 400
    for number in range(40):
        found.candidate.append(100_000)
        found.add("call", answer(500 + (late_us if number % 10 < of_ten else 0), 100))
        found.add("empty call", answer(400, 0))
    assert found.is_doubtful is is_doubtful


@pytest.mark.parametrize(("late_us", "is_doubtful"), [(39, True), (20, False)])
def test_what_one_call_of_each_block_hides_counts_by_half(late_us: float, is_doubtful: bool) -> None:
    found = Seen(unloaded(around_us=400, take_us=20), 0, 20_000)
    found.cover_us = 400
    for number in range(40):
        found.candidate.append(100_000)
        # As in A B, B A: of the first block nothing, so that fewer than half of the calls are late.
        found.add("call", answer(500 + (late_us if number % 2 and number > 1 else 0), 100))
        found.add("empty call", answer(400, 0))
    assert found.is_doubtful is is_doubtful


def test_a_host_that_keeps_every_process_waiting_now_and_then_raises_no_doubt() -> None:
    found = Seen(unloaded(around_us=400, take_us=20), 0, 20_000)
    found.cover_us = 400
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
    found.repeat(longest_us=400)
    assert [found.candidate, found.reference, found.second] == [[], [], []]
    found.candidate.append(120_000)
    for _ in range(2):
        found.add("call", answer(520, 120))
        found.add("empty call", answer(400, 0))
    assert not found.is_doubtful
    assert found.repeats == 1


@pytest.mark.parametrize(("cover_us", "then_us"), [(400, 1500), (1500, 1500), (IDLE, IDLE)])
def test_pairs_that_are_run_again_are_behind_the_longest_cover_unless_behind_none(cover_us: int, then_us: int) -> None:
    found = seen(unloaded(400, 20), take_us=20, copy_us=0, around_us=400, late_us=80, cover_us=cover_us)
    found.repeat(longest_us=1500)
    assert found.cover_us == then_us


@pytest.mark.parametrize(
    ("late_us", "added_us"),
    [(11, 0), (12 + 20, 0), (12 + 20 + 30, 30), (12 + 20 + 50, 50)],
)
def test_what_a_call_on_an_idle_gpu_hides_beyond_the_references_is_added_to_its_time(
    late_us: float, added_us: float
) -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=late_us + 3, cover_us=IDLE)
    assert not found.is_doubtful
    assert found.added_share * 500 == pytest.approx(added_us)


def test_what_a_reference_behind_a_cover_exceeds_its_events_by_is_no_room_for_a_candidate_on_an_idle_gpu() -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(
        first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=15 + 30, cover_us=IDLE, reference_cover_us=400
    )
    assert found.added_share * 500 == pytest.approx(30)


def test_what_a_long_reference_exceeds_its_events_by_is_no_room_for_a_short_candidate() -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(
        first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=15 + 50 + 30, cover_us=IDLE, reference_us=400
    )
    assert found.added_share * 500 == pytest.approx(30)


def test_of_a_call_on_an_idle_gpu_no_more_than_a_fifth_is_added() -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=15 + 20 + 101, cover_us=IDLE)
    assert found.is_doubtful


@pytest.mark.parametrize(
    ("late_us", "added_us", "is_doubtful", "is_refused"),
    [
        (14, 0, False, False),  # 3 % of its 500 us are noise
        (15 + 14, 14, False, False),
        (15 + 16, 16, True, False),
        (15 + 99, 99, True, False),
        (15 + 101, 101, True, True),
    ],
)
def test_behind_a_cover_a_little_is_added_at_once_and_more_than_a_fifth_not_at_all(
    late_us: float, added_us: float, is_doubtful: bool, is_refused: bool
) -> None:
    first = unloaded(around_us=400, take_us=20)
    found = seen(first, take_us=20, copy_us=0, around_us=400, span_us=500, late_us=late_us)
    assert found.added_share * 500 == pytest.approx(added_us)
    assert (found.is_doubtful, found.is_refused) == (is_doubtful, is_refused)


@pytest.mark.parametrize(("late_us", "is_refused"), [((200, 100), True), ((100, 100), False), ((200, 20), False)])
def test_only_pairs_without_doubt_clear_a_candidate_of_those_before(
    late_us: tuple[float, float], is_refused: bool
) -> None:
    found = seen(unloaded(400, 20), take_us=20, copy_us=0, around_us=400, span_us=500, late_us=late_us[0])
    found.repeat(longest_us=400)
    fill(found, around_us=400, span_us=500, late_us=late_us[1])
    assert found.is_refused is is_refused


@pytest.mark.parametrize(
    ("kernels_us", "launches_us", "cover_us"),
    [
        (5, 10, 400),
        (60, 95, 400),
        (60, 105, 800),  # 400 us would hide it, but not if the host had a bad moment
        (190, 20, 800),  # no launches to speak of; that cannot be told from the times
        (100, 210, 1500),
        (100, 1400, 1500),
        (100, 3900, 1500),  # no more would be over before a turn of the GPU is
        (4000, 3900, 1500),
        (15_000, 5000, 1500),
        (30_000, 5000, IDLE),
        (100, 50_000, IDLE),
    ],
)
def test_as_short_a_cover_is_taken_as_hides_all_launches_with_room_to_spare(
    kernels_us: int, launches_us: int, cover_us: int
) -> None:
    def span_ns(level: int) -> int:
        return 1000 * max(kernels_us, launches_us - level)

    assert best_cover(span_ns) == cover_us


@pytest.mark.parametrize(
    ("kernels_us", "tried"), [(50, {IDLE, PROBE, 400}), (480, {IDLE, PROBE}), (1600, {IDLE, 1500})]
)
def test_no_more_is_tried_once_it_is_known_to_be_enough(kernels_us: int, tried: set[int]) -> None:
    calls: list[int] = []

    def span_ns(level: int) -> int:
        calls.append(level)
        return 1000 * kernels_us

    best_cover(span_ns)
    assert set(calls) == tried


def test_on_further_workloads_it_is_found_in_fewer_calls() -> None:
    search, tried = CoverSearch(), list[int]()

    def span_ns(level: int) -> int:
        tried.append(level)
        return 50_000

    assert search.best_for(span_ns) == 400
    assert tried == [IDLE] * 4 + [PROBE] * 4 + [400] * 4
    tried.clear()
    assert search.best_for(span_ns) == 400
    assert tried == [IDLE] * 2 + [PROBE] * 2 + [400] * 4


def test_one_call_in_which_a_launch_came_too_late_takes_a_longer_cover() -> None:
    late = iter([50_000, 50_000, 90_000, 50_000])
    assert best_cover(lambda level: next(late) if level == 400 else 50_000) == 800


def test_a_process_that_wakes_late_behind_a_short_cover_is_timed_behind_a_longer_one() -> None:
    """As if the GPU were idle: three of four calls began when the cover was over."""
    woken_late = iter([41_000, 41_000, 10_000, 41_000])
    spans = {IDLE: 41_000, 800: 10_000, PROBE: 10_000}
    assert best_cover(lambda level: next(woken_late) if level == 400 else spans[level]) == 800


@pytest.mark.parametrize("kernels_us", [5, 250, 1400])
@pytest.mark.parametrize("noise_us", [0, 30, 300])
def test_a_call_that_waits_for_the_gpu_in_its_midst_is_timed_on_an_idle_one(kernels_us: int, noise_us: int) -> None:
    noise = itertools.cycle((0, 0, noise_us, 0))
    turn_us = 1500

    def span_ns(level: int) -> int:
        return 1000 * (kernels_us + max(0, level - turn_us) + next(noise))

    assert best_cover(span_ns) == IDLE


@pytest.mark.parametrize("kernels_us", [2200, 3400, 10_000])
@pytest.mark.parametrize("taken_us", [-50, 0, 50])
def test_a_long_call_begins_behind_the_longest_cover_though_more_would_interrupt_it(
    kernels_us: int, taken_us: int
) -> None:
    late_us = itertools.cycle((10, 90, 30, 250))

    def span_ns(level: int) -> int:
        if level == IDLE:
            return 1000 * (kernels_us + next(late_us))
        return 1000 * (kernels_us + taken_us + (1800 if level > 1500 else 0))

    assert best_cover(span_ns) == 1500


@pytest.mark.parametrize("kernels_us", [1600, 4000])
def test_a_long_call_that_the_longest_cover_keeps_waiting_is_timed_on_an_idle_gpu(kernels_us: int) -> None:
    assert best_cover(lambda level: 1000 * (kernels_us + max(0, level - 1000))) == IDLE


@pytest.mark.parametrize(
    ("cover_us", "span_us", "may"), [(IDLE, 100, True), (400, 100, False), (1500, 1400, False), (1500, 1600, True)]
)
def test_long_calls_may_wait_for_the_gpu_in_their_midst_and_short_ones_only_if_they_were_seen_to(
    cover_us: int, span_us: int, may: bool
) -> None:
    assert may_wait(cover_us, 1000 * span_us) is may


@pytest.mark.parametrize(("latency_us", "share"), [(1000.0, 0.0031), (100.0, 0.004), (5.0, 0.023), (0.01, 1.003)])
def test_processes_differ_by_a_share_of_a_call_and_short_calls_by_more(latency_us: float, share: float) -> None:
    assert between_processes(latency_us) == pytest.approx(share)
