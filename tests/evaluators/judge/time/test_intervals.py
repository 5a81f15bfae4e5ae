"""The median's interval: its ranks, and how often it holds the truth under noise as hosts have it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from evaluators.judge.time.sampling import FOUR, Pair, TimingPolicy, interval_of_four, median_interval, time_pairs

RUNS = 2000
LEAST_COVERAGE = 0.935
"""Of an interval that says 95 %: three standard deviations of a count of 2000 below it."""


def test_few_values_are_enclosed_by_their_extremes() -> None:
    assert median_interval([3, 1, 2]) == (2, 1, 3)
    assert median_interval([6, 5, 4, 3, 2, 1]) == (3.5, 1, 6)


def test_one_value_says_nothing_of_its_spread() -> None:
    assert median_interval([5.0]) == (5.0, 5.0, 5.0)


def test_the_ends_move_inwards_as_values_are_added() -> None:
    widths = []
    for count in (6, 9, 12, 20, 40):
        middle, low, high = median_interval([index / count for index in range(count)])
        assert low + high == pytest.approx(2 * middle)
        widths.append((high - low) * count / (count - 1))
    assert widths == sorted(widths, reverse=True)


def test_a_wild_value_does_not_move_the_ends() -> None:
    calm = [float(index) for index in range(16)]
    assert median_interval(calm) == median_interval([*calm[:-1], 1e9])


def normal(draw: random.Random) -> float:
    return draw.gauss(0, 0.03)


def interrupted(draw: random.Random) -> float:
    """One call in ten, on either side, is held up by something."""
    return _held_up(draw) - _held_up(draw)


def lopsided(draw: random.Random) -> float:
    """Only one side is ever held up: it has more threads, or longer calls."""
    return _held_up(draw)


def cauchy(draw: random.Random) -> float:
    return 0.01 * math.tan(math.pi * (draw.random() - 0.5))


def _held_up(draw: random.Random) -> float:
    return draw.gauss(0, 0.01) + (draw.expovariate(1 / 0.3) if draw.random() < 0.1 else 0.0)


@pytest.mark.parametrize("order_effect", [0.0, 0.05])
@pytest.mark.parametrize("noise", [normal, interrupted, cauchy])
def test_the_interval_holds_the_truth_as_often_as_it_says_also_when_pairs_are_added_until_it_is_narrow(
    noise: Callable[[random.Random], float], order_effect: float
) -> None:
    assert share_of_hits(noise, order_effect) >= LEAST_COVERAGE


def test_where_only_one_side_is_held_up_it_holds_the_truth_a_little_less_often() -> None:
    assert share_of_hits(lopsided, 0.0) >= 0.89


@pytest.mark.parametrize(("noise", "least"), [(normal, 0.96), (interrupted, 0.96), (cauchy, 0.96), (lopsided, 0.92)])
def test_the_interval_of_four_values_holds_the_truth_as_often_as_that_of_more(
    noise: Callable[[random.Random], float], least: float
) -> None:
    draw, hits = random.Random(7), 0
    for _ in range(RUNS):
        _, low, high = interval_of_four([(noise(draw) + noise(draw)) / 2 for _ in range(FOUR)])
        hits += low <= 0 <= high
    assert hits / RUNS >= least


def share_of_hits(noise: Callable[[random.Random], float], order_effect: float, *, truth: float = 1.5) -> float:
    """Return how often a timing's interval holds the true ratio.

    Args:
        noise: of the logarithm of a pair's ratio.
        order_effect: what it costs, in the same measure, to go second.
        truth: the ratio.
    """
    draw = random.Random(7)

    def run_pair(candidate_first: bool) -> Pair:
        log_ratio = math.log(truth) + noise(draw) + (order_effect if candidate_first else -order_effect)
        return Pair(candidate_ns=10**9, reference_ns=max(1, int(1e9 * math.exp(log_ratio))))

    hits = 0
    for _ in range(RUNS):
        interval = time_pairs(run_pair, TimingPolicy(lease_s=60)).interval
        hits += interval.low <= truth <= interval.high
    return hits / RUNS
