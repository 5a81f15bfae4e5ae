"""What several workloads come to together, and which of them gets the next pairs."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from evaluators.judge.time.sampling import Pair, Timing, TimingPolicy
from evaluators.judge.time.timing import Lane, measured_together, repeat_lane, time_lanes, together
from messages.verdicts import Interval, Measured, Unstable, credit_of

NO_HURRY = TimingPolicy(lease_s=60.0, stretched_lease_s=60.0)
SLOW_NS = 1_000_000_000
"""A call of a reference that is given no more than four pairs."""


def lane(
    candidate_ns: Callable[[int], int],
    reference_ns: int = 1_000_000,
    visits: list[str] | None = None,
) -> Lane:
    """Return a workload on which the n-th pair takes what is said."""
    count = 0

    def run_pair(candidate_first: bool) -> Pair:
        nonlocal count
        count += 1
        return Pair(candidate_ns=candidate_ns(count), reference_ns=reference_ns)

    noted = visits if visits is not None else []
    enter, begin = lambda: noted.append("entered"), lambda: noted.append("begun")
    return Lane(run_pair, enter, begin=begin, reference_ns=reference_ns)


def steady(speedup: float) -> Lane:
    return lane(lambda _: round(1_000_000 / speedup))


def timing(speedup: float = 1, ends: tuple[float, float] = (1, 1), **changes: float) -> Timing:
    """Return what pairs say; `changes` are other fields."""
    fields: dict[str, float] = {"latency_us": 1, "reference_latency_us": 1, "half_width": 0.05, "pairs": 12} | changes
    return Timing(speedup=speedup, interval=Interval(low=ends[0], high=ends[1]), **fields)  # type: ignore[arg-type]


def ends(interval: Interval | None) -> list[float]:
    assert interval is not None
    return [interval.low, interval.high]


def test_the_mean_is_geometric_also_of_the_ends_of_intervals() -> None:
    # By hand: sqrt(2 * 8) = 4; sqrt(1 * 4) = 2 and sqrt(4 * 9) = 6; half widths 0.1 and 0.3.
    one = timing(2, (1, 4), latency_us=50, reference_latency_us=100, half_width=0.1)
    other = timing(8, (4, 9), latency_us=200, reference_latency_us=1600, half_width=0.3, pairs=16)
    both = together([one, other])
    assert both.speedup == pytest.approx(4)
    assert ends(both.interval) == pytest.approx([2, 6])
    assert [both.latency_us, both.reference_latency_us] == pytest.approx([100, 400])
    assert both.half_width == pytest.approx(0.2)
    assert both.pairs == 12


def test_a_measurement_of_several_says_each_and_credits_the_lower_end_of_their_mean() -> None:
    found = {
        name: Measured(
            timed=True,
            latency_us=100 / speedup,
            reference_latency_us=100,
            speedup_vs_reference=speedup,
            speedup_interval=Interval(low=speedup / 2, high=2 * speedup),
            pairs=12,
        )
        for name, speedup in {"slow": 0.5, "fast": 8.0}.items()
    }
    verdict = measured_together(found, together([timing(), timing()]), NO_HURRY)
    assert isinstance(verdict, Measured)
    assert verdict.speedup_vs_reference == pytest.approx(2)
    assert ends(verdict.speedup_interval) == pytest.approx([1, 4])
    assert credit_of(verdict) == pytest.approx(1)
    assert [(one.name, one.speedup_vs_reference) for one in verdict.workloads] == [("slow", 0.5), ("fast", 8.0)]
    assert verdict.pairs == 24


def test_what_is_not_known_exactly_enough_together_is_unstable() -> None:
    wide = timing(1, (0.5, 2), half_width=0.69)
    assert isinstance(measured_together({}, wide, NO_HURRY), Unstable)


def test_each_workload_gets_the_fewest_pairs_that_an_interval_takes() -> None:
    policy = msgspec.structs.replace(NO_HURRY, min_pairs_of_several=8)
    rounds = time_lanes([steady(2), steady(3), steady(4)], policy)
    assert [timing.pairs for timing in rounds.timings] == [8] * 3
    assert rounds.together.speedup == pytest.approx(24 ** (1 / 3), rel=1e-3)


def test_further_pairs_go_to_the_workload_that_is_known_least() -> None:
    noisy = lane(lambda count: 1_500_000 if (count - 1) // 2 % 2 else 1_000_000)
    rounds = time_lanes([steady(2), noisy, steady(2)], NO_HURRY)
    assert [timing.pairs for timing in rounds.timings] == [12, NO_HURRY.max_pairs, 12]


@pytest.mark.parametrize(("reference_ns", "pairs"), [(1_000_000, [4, 8, 16]), (20_000_000, [4, 8, 12])])
def test_where_four_pairs_do_further_ones_come_by_four(reference_ns: int, pairs: list[int]) -> None:
    policy = msgspec.structs.replace(NO_HURRY, min_pairs_of_several=8, min_pairs=8, long_ns=10e6)
    one, found = lane(lambda _: 500_000, reference_ns), list[int]()
    for _ in pairs:
        one.visit(policy)
        found.append(len(one.pairs))
    assert found == pairs


def test_a_candidate_is_given_up_for_the_mean_and_not_for_one_slow_workload() -> None:
    policy = TimingPolicy(lease_s=60.0, stretched_lease_s=60.0, keep_above=1.5)
    kept = time_lanes([steady(0.5), steady(8)], policy)
    assert not kept.together.hopeless
    given_up = time_lanes([steady(0.5), steady(2), steady(1)], policy)
    assert given_up.together.hopeless
    assert [timing.pairs for timing in given_up.timings] == [policy.hopeless_pairs] * 3


def test_a_workload_is_entered_each_time_that_it_follows_another() -> None:
    visits: list[str] = []
    time_lanes([lane(lambda _: 500_000, visits=visits), steady(2)], NO_HURRY)
    assert visits == ["entered", "entered"]  # a few pairs, to see who is hopeless, and the others


def test_one_workload_alone_is_entered_once() -> None:
    visits: list[str] = []
    time_lanes([lane(lambda _: 500_000, visits=visits)], NO_HURRY)
    assert visits == ["entered"]


def test_a_host_that_disturbs_one_workload_is_not_fit() -> None:
    def disturbed(candidate_first: bool) -> Pair:
        return Pair(candidate_ns=1, reference_ns=1, disturbance="another process had its core")

    rounds = time_lanes([Lane(disturbed, lambda: None, begin=lambda: None), steady(2)], NO_HURRY)
    assert rounds.together.is_disturbed


def test_slow_workloads_get_four_pairs_whose_interval_allows_for_that() -> None:
    took_ns = iter([500_000_000, 510_000_000, 490_000_000, 505_000_000])
    slow = lane(lambda _: next(took_ns), SLOW_NS)
    quick = lane(lambda number: 250_000 + 100 * (number % 3))
    rounds = time_lanes([slow, quick], NO_HURRY)
    assert [timing.pairs for timing in rounds.timings] == [4, 12]
    assert rounds.together.pairs == 4
    # By hand: median 0.68817 and standard deviation 0.01709 of the logarithms; 3.981 * 0.01709 / 2 = 0.03402.
    assert ends(rounds.timings[0].interval) == pytest.approx([1.9235, 2.0589], rel=1e-4)


@pytest.mark.parametrize("others", [0, 1])
def test_pairs_of_a_workload_that_are_run_again_count_and_those_before_do_not(others: int) -> None:
    doubted = lane(lambda number: 500_000 if number <= 12 else 800_000)
    lanes = [doubted, *(steady(2) for _ in range(others))]
    policy = msgspec.structs.replace(NO_HURRY, min_pairs=12)
    first = time_lanes(lanes, policy)
    assert [timing.speedup for timing in first.timings] == pytest.approx([2] * len(lanes))
    again = repeat_lane(lanes, 0, policy, first)
    assert [timing.speedup for timing in again.timings] == pytest.approx([1.25, *[2] * others])
    # Of several workloads the first pairs may be few, by which a doubt is not to be settled.
    assert [timing.pairs for timing in again.timings] == ([16, 12] if others else [12])
    assert again.together.speedup == pytest.approx((1.25 * 2**others) ** (1 / len(lanes)))


@pytest.mark.parametrize("others", [0, 1])
def test_the_lower_end_does_not_rise_when_pairs_are_run_again(others: int) -> None:
    lanes = [lane(lambda number: 800_000 if number <= 12 else 500_000), *(steady(2) for _ in range(others))]
    policy = msgspec.structs.replace(NO_HURRY, min_pairs=12)
    again = repeat_lane(lanes, 0, policy, time_lanes(lanes, policy))
    assert ends(again.timings[0].interval) == pytest.approx([1.25, 2])
    assert again.timings[0].half_width == pytest.approx(math.log(2 / 1.25) / 2)
    assert again.together.interval.low == pytest.approx((1.25 * 2**others) ** (1 / len(lanes)))


def test_slow_workloads_alone_are_done_after_four_pairs_each() -> None:
    rounds = time_lanes([lane(lambda n: 500_000_000 + n, SLOW_NS) for _ in range(2)], NO_HURRY)
    assert [timing.pairs for timing in rounds.timings] == [4, 4]
    assert not rounds.together.hopeless


def test_four_pairs_do_where_calls_take_long_and_know_their_workload_well_and_more_follow_where_they_do_not() -> None:
    policy = msgspec.structs.replace(NO_HURRY, long_ns=1_000_000)
    known = lane(lambda number: 1_000_000 + number, 2_000_000)
    known_later = lane(lambda number: 1_100_000 if number == 1 else 1_000_000 + number, 2_000_000)
    rounds = time_lanes([known, known_later, steady(2)], policy)
    # Four values, of which one is off by a tenth, leave 10 % open; of six blocks none counts that lies outside.
    assert [timing.pairs for timing in rounds.timings] == [4, 12, 12]
    assert ends(rounds.timings[0].interval) == pytest.approx([2, 2], rel=1e-3)


def test_what_is_not_known_well_by_four_pairs_of_long_calls_is_told_with_what_they_leave_open() -> None:
    policy = TimingPolicy(lease_s=0.0, stretched_lease_s=0.0, long_ns=1_000_000)
    took_ns = iter([1_000_000, 1_020_000, 980_000, 1_010_000])
    rounds = time_lanes([lane(lambda _: next(took_ns), 2_000_000), steady(2)], policy)
    assert [timing.pairs for timing in rounds.timings] == [4, 12]
    # As above: the same logarithms.
    assert ends(rounds.timings[0].interval) == pytest.approx([1.9235, 2.0589], rel=1e-4)
