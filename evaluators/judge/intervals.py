"""An interval for a median that makes no assumption about the noise, and is exact for few values; one for four values.

The k-th smallest and the k-th largest of n independent values enclose the median of their distribution with probability
1 - 2 P(B < k), B binomial (n, 1/2), whatever that distribution is (order statistics; David and Nagaraja 2003, section
7.1). Between two neighbouring k the ends are interpolated as by Hettmansperger and Sheather (1986), so that the
interval has the wanted coverage and not the next larger one. A percentile bootstrap of so few values is too narrow: it
covers 88 % where it says 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb, sqrt
from statistics import median, stdev

COVERAGE = 0.97
"""Of an interval that is looked at once. Pairs are added until it is narrow enough, which costs two in a hundred: what
is left is 95 %."""

FOUR = 4
_QUANTILE_OF_FOUR = 3.981
"""At COVERAGE, of the median of four normal values in standard errors, by 20 million draws; of the mean, Student's t,
it is 3.896."""


def interval_of_four(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of four values and the ends of its interval, for noise that is about normal.

    Four values have no such interval without an assumption: their extremes enclose the median 7 times in 8. It is
    Student's (1908), but about the median, which one wild value does not move. Where normal noise has 97 %, Student's t
    with 2 or 3 degrees of freedom and Laplace's have 98 %, noise of which a fifth is wild 97 %, exponential noise 96 %.

    Args:
        values: four of them.
    """
    middle = median(values)
    half_width = _QUANTILE_OF_FOUR * stdev(values) / sqrt(FOUR)
    return middle, middle - half_width, middle + half_width


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median of values and the ends of its interval.

    Of fewer than six values the interval is the smallest and the largest, which is too narrow: 94 % for five, 75 % for
    three, of one none at all.

    Args:
        values: at least one.
    """
    ordered = sorted(values)
    rank, share = _rank(len(ordered))
    low = _between(ordered[rank - 1], ordered[rank], share) if share else ordered[rank - 1]
    high = _between(ordered[-rank], ordered[-rank - 1], share) if share else ordered[-rank]
    return median(ordered), low, high


@cache
def _rank(count: int) -> tuple[int, float]:
    """Return which smallest value is the lower end, and how far the end lies towards the next."""
    rank = 1
    while rank + 1 <= count // 2 and _coverage(count, rank + 1) >= COVERAGE:
        rank += 1
    wide = _coverage(count, rank)
    if wide <= COVERAGE or rank + 1 > count // 2:
        return rank, 0.0
    excess = (wide - COVERAGE) / (wide - _coverage(count, rank + 1))
    return rank, (count - rank) * excess / (rank + (count - 2 * rank) * excess)


def _coverage(count: int, rank: int) -> float:
    return 1.0 - 2.0 * sum(comb(count, below) for below in range(rank)) / float(2**count)


def _between(this: float, other: float, share: float) -> float:
    return this + share * (other - this)
