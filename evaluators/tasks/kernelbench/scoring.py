"""KernelBench's metrics from our verdicts. Pure.

As defined in its `score.py` (423217d, March 2026): `fast_p` is the share of *all* problems with a correct candidate
that is more than p times as fast as the baseline; the geometric mean is over correct candidates only. Here a candidate
is correct if every call was, timed ones included. A candidate with an unknown speed counts as correct, is faster than
no threshold but 0, and is in no mean. A problem that could not be evaluated counts as one without a correct candidate:
leaving it out would raise the score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from messages.verdicts import CORRECT_FATES, Measured, Verdict, fate_of

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""Thresholds for which upstream prints `fast_p`."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one problem."""

    correct: bool
    speedup: float | None = None
    """Speedup against one baseline; null: not known."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The upstream's metrics against one baseline."""

    baseline: str
    """`eager`, or `torch.compile`."""
    problems: int
    correct: int
    timed: int
    """Problems with a known speedup against this baseline."""
    fast_p: dict[str, float]
    """Threshold to share of all problems: `{"1.0": 0.25}`."""
    geometric_mean: float | None
    """Geometric mean of the speedups of correct candidates; null: there are none."""
    geometric_mean_faster: float | None
    """The same over speedups above 1."""


def outcome_of(verdict: Verdict | None, *, baseline: bool = False) -> Outcome:
    """Return the outcome of a verdict.

    Args:
        verdict: null: the problem could not be evaluated.
        baseline: against the second program (`torch.compile`) instead of the reference.
    """
    if verdict is None or fate_of(verdict) not in CORRECT_FATES:
        return Outcome(correct=False)
    if not isinstance(verdict, Measured) or not verdict.timed:
        return Outcome(correct=True)
    return Outcome(correct=True, speedup=verdict.speedup_vs_baseline if baseline else verdict.speedup_vs_reference)


def score(outcomes: Sequence[Outcome], baseline: str) -> Score:
    """Return the metrics of a set of problems."""
    known = [one.speedup for one in outcomes if one.correct and one.speedup is not None]
    return Score(
        baseline=baseline,
        problems=len(outcomes),
        correct=sum(one.correct for one in outcomes),
        timed=len(known),
        fast_p={f"{threshold:.1f}": fast_p(outcomes, threshold) for threshold in THRESHOLDS},
        geometric_mean=_geometric_mean(known),
        geometric_mean_faster=_geometric_mean(speedup for speedup in known if speedup > 1),
    )


def fast_p(outcomes: Sequence[Outcome], threshold: float) -> float:
    """Return the share of all problems with a correct candidate that is more than this many times as fast."""
    fast = sum(one.correct and (threshold == 0 if one.speedup is None else one.speedup > threshold) for one in outcomes)
    return fast / len(outcomes) if outcomes else 0.0


def _geometric_mean(speedups: Iterable[float]) -> float | None:
    logarithms = [math.log(speedup) for speedup in speedups if speedup > 0]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None
