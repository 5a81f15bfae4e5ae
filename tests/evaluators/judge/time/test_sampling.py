"""The stopwatch's decisions and statistics, on made-up pairs."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from evaluators.judge.time.sampling import (
    Pair,
    Timing,
    TimingPolicy,
    decide,
    floored,
    last_level_cache_bytes,
    net_ns,
    outpaced,
    slowed,
    summarize,
    time_pairs,
    too_fast,
    widened,
)


def pair(ratio: float) -> Pair:
    return Pair(candidate_ns=1_000_000, reference_ns=int(1_000_000 * ratio))


def test_equal_pairs_have_an_interval_of_no_width() -> None:
    timing = summarize([pair(2.0)] * 8)
    assert timing.speedup == pytest.approx(2.0)
    assert (timing.interval.low, timing.interval.high) == pytest.approx((2.0, 2.0))
    assert (timing.latency_us, timing.reference_latency_us) == (1000, 2000)


def test_who_may_have_taken_longer_is_credited_as_if_so_and_may_not_have() -> None:
    timing = summarize([pair(1.9), pair(2.1)] * 8)
    surely, perhaps = slowed(timing, 1.25), slowed(timing, 1.25, is_certain=False)
    for later in (surely, perhaps):
        assert (later.latency_us, later.speedup) == pytest.approx((1250, timing.speedup / 1.25))
        assert later.interval.low == pytest.approx(timing.interval.low / 1.25)
    assert surely.interval.high == pytest.approx(timing.interval.high / 1.25)
    assert perhaps.interval.high == timing.interval.high


def test_one_disturbed_pair_does_not_move_the_median() -> None:
    assert summarize([pair(2.0)] * 11 + [pair(50.0)]).speedup == pytest.approx(2.0)


def test_the_interval_holds_the_truth_and_narrows_with_more_pairs() -> None:
    draw = random.Random(3)
    pairs = [pair(1.5 * draw.lognormvariate(0, 0.1)) for _ in range(40)]
    few, many = summarize(pairs[:12]), summarize(pairs)
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

    assert time_pairs(run, TimingPolicy()).pairs == 12
    assert order == [True, False] * 6


def test_noise_is_met_with_more_pairs_up_to_the_cap() -> None:
    draw = random.Random(5)
    timing = time_pairs(lambda _: pair(draw.lognormvariate(0, 0.5)), TimingPolicy(max_pairs=40))
    assert timing.pairs == 40


def test_a_spent_lease_ends_it_after_the_least_number_of_pairs() -> None:
    draw = random.Random(5)
    policy = TimingPolicy(lease_s=0, stretched_lease_s=0)
    assert time_pairs(lambda _: pair(draw.lognormvariate(0, 0.5)), policy).pairs == 12


def test_the_lease_is_stretched_while_the_interval_is_useless() -> None:
    draw = random.Random(5)
    timing = time_pairs(lambda _: pair(draw.lognormvariate(0, 1.0)), TimingPolicy(lease_s=0))
    assert timing.pairs > 12


def test_what_going_second_costs_does_not_count() -> None:
    timing = time_pairs(lambda candidate_first: pair(2.0 * (1.1 if candidate_first else 1 / 1.1)), TimingPolicy())
    assert timing.speedup == pytest.approx(2.0)
    assert timing.half_width < 1e-6


def test_a_disturbed_pair_is_run_again_in_the_same_order_and_counted() -> None:
    order: list[bool] = []

    def run(candidate_first: bool) -> Pair:
        order.append(candidate_first)
        if len(order) == 2:
            return replace(pair(9.0), disturbance="something else ran")
        return pair(2.0)

    timing = time_pairs(run, TimingPolicy())
    assert order[:4] == [True, False, False, True]
    assert (timing.pairs, timing.discarded) == (12, ("something else ran",))
    assert timing.interval.high == pytest.approx(2.0)
    assert not timing.is_disturbed


def test_a_host_that_disturbs_most_pairs_is_given_up() -> None:
    timing = time_pairs(lambda _: replace(pair(2.0), disturbance="something else ran"), TimingPolicy())
    assert timing.is_disturbed
    assert len(timing.discarded) == TimingPolicy().max_disturbed


def test_a_candidate_that_is_much_slower_is_given_up_early() -> None:
    timing = time_pairs(lambda _: pair(0.2), TimingPolicy(lease_s=0))
    assert (timing.pairs, timing.hopeless) == (4, True)


def test_a_candidate_that_is_many_times_slower_is_given_up_after_a_first_block() -> None:
    timing = time_pairs(lambda _: pair(0.01), TimingPolicy(lease_s=0))
    assert (timing.pairs, timing.hopeless) == (2, True)


def test_a_slow_candidate_whose_calls_are_quick_is_timed_to_the_end() -> None:
    timing = time_pairs(lambda _: pair(0.01), TimingPolicy(lease_s=3600))
    assert (timing.pairs, timing.hopeless) == (12, False)


def test_in_a_race_what_is_far_below_the_bar_ends_after_two_pairs_however_quick_its_calls_are() -> None:
    timing = time_pairs(lambda _: pair(0.1), TimingPolicy(lease_s=3600, keep_above=0.9))
    assert (timing.pairs, timing.hopeless) == (2, True)


def test_a_time_is_never_less_than_the_clock_can_tell() -> None:
    assert net_ns(50_000, 60_000) == 1000
    assert net_ns(70_000, 60_000) == 10_000


def test_the_hosts_cache_has_a_size() -> None:
    assert last_level_cache_bytes() >= 1 << 20


def test_a_candidate_clearly_below_what_is_asked_for_is_given_up_after_four_pairs() -> None:
    draw = random.Random(5)
    timing = time_pairs(lambda _: pair(draw.lognormvariate(0, 0.05)), TimingPolicy(keep_above=1.8))
    assert (timing.pairs, timing.hopeless) == (4, True)
    verdict = outpaced(timing, TimingPolicy(keep_above=1.8))
    assert verdict.speedup_interval.high < 1.8
    assert "1.8x that was to be reached" in verdict.reason


@pytest.mark.parametrize("above", [1.11, 1.5, 3.0])
def test_a_candidate_above_what_is_asked_for_is_timed_to_the_end_though_times_scatter(above: float) -> None:
    def noisy(draw: random.Random) -> Timing:
        return time_pairs(lambda _: pair(above * draw.lognormvariate(0, 0.1)), TimingPolicy(keep_above=1))

    given_up = sum(noisy(random.Random(seed)).hopeless for seed in range(100))
    assert given_up <= 3


def test_what_is_asked_for_takes_the_place_of_half_the_references_speed() -> None:
    policy = TimingPolicy(lease_s=0, stretched_lease_s=0, keep_above=0.2)
    timing = time_pairs(lambda _: pair(0.3), policy)
    assert not timing.hopeless
    assert time_pairs(lambda _: pair(0.3), replace(policy, keep_above=None)).hopeless


def test_a_call_that_is_too_short_to_be_known_is_told_as_long_as_is_sure() -> None:
    timing = replace(summarize([pair(3.0)] * 8), latency_us=10.0, reference_latency_us=30.0)
    sure = floored(timing, 20.0)
    assert (sure.latency_us, sure.reference_latency_us) == pytest.approx((20.0, 30.0))
    assert (sure.speedup, sure.interval.low, sure.interval.high) == pytest.approx((1.5, 1.5, 1.5))


def test_what_no_pair_shows_widens_the_interval_at_both_ends() -> None:
    interval = widened(summarize([pair(2.0)] * 8).interval, 0.05)
    assert (interval.low, interval.high) == pytest.approx((2.0 * 0.951, 2.0 * 1.051), rel=1e-3)


@pytest.mark.parametrize("floor_us", [0.0, 1.0, 1000.0])
def test_a_call_that_is_long_enough_is_told_as_it_is(floor_us: float) -> None:
    timing = summarize([pair(3.0)] * 8)
    assert floored(timing, floor_us) == timing


def test_less_time_than_memory_needs_is_doubted_unless_the_reference_takes_less_as_well() -> None:
    timing = summarize([Pair(candidate_ns=10_000, reference_ns=50_000)] * 12)

    def refuses(tensor_bytes: int, needed_bytes: int) -> bool:
        return (
            too_fast(timing, tensor_bytes=tensor_bytes, needed_bytes=lambda: needed_bytes, bytes_per_s=1e9) is not None
        )

    assert refuses(40_000, 40_000), "40 us, 10 are said"
    assert refuses(40_000, 11_000)
    assert not refuses(40_000, 9_000), "the outputs depend on a part of the tensors"
    assert not refuses(9_000, 9_000)
    assert not refuses(1_000_000, 1_000_000), "it gathers a part of them"


def test_where_the_figure_is_asked_for_a_slow_candidate_is_timed_to_the_end() -> None:
    costly = TimingPolicy(lease_s=0.0, keep_above=0.0)
    timing = time_pairs(lambda _: pair(0.05), costly)
    assert (timing.pairs, timing.hopeless, round(timing.speedup, 3)) == (12, False, 0.05)
    assert not decide(replace(timing, pairs=4), 15.0, costly)  # 12 pairs take 45 s
    late = decide(replace(timing, pairs=4), 30.0, costly)
    assert late is not None
    assert late.hopeless  # they would take 90 s
    assert "slower than the reference" in outpaced(late, costly).reason


def test_a_candidate_that_spoils_its_own_slow_calls_is_given_up_before_it_has_chosen_what_is_measured() -> None:
    draw = random.Random(3)

    def spoiling(_: bool) -> Pair:
        slow = draw.random() < 0.4
        return replace(pair(0.8 if slow else 1.2), disturbance="it went on" if slow else "", is_own=slow)

    timing = time_pairs(spoiling, TimingPolicy(half_width=0.0, max_pairs=100))
    assert (timing.is_disturbed, timing.is_chosen, timing.own_discards) == (True, True, 7)


def test_on_a_host_that_disturbs_both_sides_alike_no_candidate_is_given_up_for_choosing() -> None:
    chosen = 0
    for seed in range(200):
        draw = random.Random(seed)

        def disturbed(_: bool, draw: random.Random = draw) -> Pair:
            side = draw.random()
            hindrance = "it waited for a core" if side < 0.2 else ""
            return replace(pair(1.0), disturbance=hindrance, is_own=side < 0.1)

        chosen += time_pairs(disturbed, TimingPolicy(half_width=0.0, max_pairs=100)).is_chosen
    assert chosen <= 6
