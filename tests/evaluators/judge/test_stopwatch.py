"""The stopwatch's decisions and statistics, on made-up pairs."""

from __future__ import annotations

import random

import pytest

from evaluators.judge.stopwatch import Pair, TimingPolicy, last_level_cache_bytes, net_ns, summarize, time_pairs


def pair(ratio: float) -> Pair:
    return Pair(candidate_ns=1_000_000, reference_ns=int(1_000_000 * ratio))


def test_equal_pairs_have_an_interval_of_no_width() -> None:
    timing = summarize([pair(2.0)] * 8)
    assert timing.speedup == pytest.approx(2.0)
    assert (timing.interval.low, timing.interval.high) == pytest.approx((2.0, 2.0))
    assert (timing.latency_us, timing.reference_latency_us) == (1000, 2000)


def test_one_disturbed_pair_does_not_move_the_median() -> None:
    assert summarize([pair(2.0)] * 9 + [pair(50.0)]).speedup == pytest.approx(2.0)


def test_the_interval_holds_the_truth_and_narrows_with_more_pairs() -> None:
    draw = random.Random(3)
    pairs = [pair(1.5 * draw.lognormvariate(0, 0.1)) for _ in range(40)]
    few, many = summarize(pairs[:8]), summarize(pairs)
    assert many.interval.low < 1.5 < many.interval.high
    assert many.half_width < few.half_width


def test_the_same_pairs_say_the_same() -> None:
    pairs = [pair(1 + index / 100) for index in range(12)]
    assert summarize(pairs) == summarize(pairs)


def test_sides_take_turns_in_going_first() -> None:
    order: list[bool] = []

    def run(candidate_first: bool) -> Pair:
        order.append(candidate_first)
        return pair(1.0)

    assert time_pairs(run, TimingPolicy()).pairs == 8
    assert order == [True, False] * 4


def test_noise_is_met_with_more_pairs_up_to_the_cap() -> None:
    draw = random.Random(5)
    timing = time_pairs(lambda _: pair(draw.lognormvariate(0, 0.5)), TimingPolicy())
    assert timing.pairs == 40


def test_a_spent_lease_ends_it_after_the_least_number_of_pairs() -> None:
    draw = random.Random(5)
    policy = TimingPolicy(lease_s=0, stretched_lease_s=0)
    assert time_pairs(lambda _: pair(draw.lognormvariate(0, 0.5)), policy).pairs == 8


def test_the_lease_is_stretched_while_the_interval_is_useless() -> None:
    draw = random.Random(5)
    timing = time_pairs(lambda _: pair(draw.lognormvariate(0, 1.0)), TimingPolicy(lease_s=0))
    assert timing.pairs > 8


def test_a_candidate_that_is_much_slower_is_given_up_early() -> None:
    timing = time_pairs(lambda _: pair(0.01), TimingPolicy(lease_s=0))
    assert (timing.pairs, timing.hopeless) == (4, True)


def test_a_time_is_never_less_than_the_clock_can_tell() -> None:
    assert net_ns(50_000, 60_000) == 1000
    assert net_ns(70_000, 60_000) == 10_000


def test_the_hosts_cache_has_a_size() -> None:
    assert last_level_cache_bytes() >= 1 << 20
