"""TritonBench's metrics from our verdicts. Pure.

As its scripts define them (thunlp/TritonBench 603e28a, `EVAL/eval_{G,T}`), with our measurements:

- call accuracy: the share of problems with a candidate that passes through the test; here: that answers all calls,
  correctly or not;
- execution accuracy: the share with a candidate that prints the output of the gold, which is nothing for most; here:
  with correct tensors in every call. A share of all problems, not of those that were called;
- speedup of a problem: the sum of the gold's times over its sizes divided by the sum of the candidate's, so that the
  largest size decides; the gold's times are measured here, in the same rounds, not taken from its authors' A100. The
  geometric mean of the sizes' ratios is reported, too;
- efficiency (G): the largest share, over sizes, of a GPU's bandwidth or tensor throughput, in percent, by the problem's
  own formulas for bytes and operations;
- both averaged (arithmetic mean) over correct problems. The upstream leaves out values that it takes for errors: 10
  times as fast or more, an efficiency of 100 or more (G), a tenth as fast or less (T). That mean is reported as
  `speedup_upstream`, beside one of all values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from messages.verdicts import CORRECT_FATES, Measured, TimedWorkload, Verdict, fate_of

UNCALLED_FATES = frozenset({"did_not_build", "crashed", "timed_out", "rejected"})
"""Statuses of candidates that do not pass through the calls."""
_MOST_SPEEDUP, _LEAST_SPEEDUP_OF_T, _MOST_EFFICIENCY = 10.0, 0.1, 100.0
_PREFIX = "perf/"


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rates of a GPU."""

    gb_per_s: float
    tflops: float


A100 = Peaks(gb_per_s=2039.0, tflops=312.0)
"""Peak rates by which upstream divides."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one size, by the problem's own formulas."""

    bytes_moved: float
    flops: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one problem."""

    called: bool
    correct: bool
    speedup: float | None = None
    """Ratio of the sums of times; null: not timed."""
    geometric_speedup: float | None = None
    """The geometric mean over sizes."""
    efficiency: float | None = None
    """Efficiency in percent; null: its work is not known."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The metrics of a set of problems."""

    problems: int
    called: int
    correct: int
    call_accuracy: float
    """Call accuracy, from 0 to 1, as the next one."""
    execution_accuracy: float
    speedup_upstream: float | None
    """Mean over the values that upstream keeps; null: there are none."""
    speedup_mean: float | None
    speedup_geometric: float | None
    """Geometric mean over problems of the geometric means over sizes."""
    efficiency_mean: float | None
    left_out: int
    """Problems that count only in `speedup_mean`."""


def outcome_of(verdict: Verdict | None, work: Mapping[int, Work] | None = None, peaks: Peaks = A100) -> Outcome:
    """Return the outcome of a verdict.

    Args:
        verdict: null: the problem could not be evaluated.
        work: work of the timed sizes, by their numbers.
        peaks: peak rates of the GPU of the measurement.
    """
    if verdict is None:
        return Outcome(called=False, correct=False)
    if fate_of(verdict) not in CORRECT_FATES:
        return Outcome(called=fate_of(verdict) not in UNCALLED_FATES, correct=False)
    timed = _timed(verdict)
    if not timed:
        return Outcome(called=True, correct=True)
    reference_us, candidate_us = (
        math.fsum(one.reference_latency_us for one in timed),
        math.fsum(one.latency_us for one in timed),
    )
    return Outcome(
        called=True,
        correct=True,
        speedup=reference_us / candidate_us,
        geometric_speedup=_geometric_mean(one.reference_latency_us / one.latency_us for one in timed),
        efficiency=_efficiency(timed, work or {}, peaks),
    )


def score(outcomes: Sequence[Outcome], suite: Literal["G", "T"]) -> Score:
    """Return the metrics of a set of problems of one suite."""
    timed = [one for one in outcomes if one.speedup is not None]
    kept = [one for one in timed if not _is_left_out(one, suite)]
    count = len(outcomes)
    return Score(
        problems=count,
        called=sum(one.called for one in outcomes),
        correct=sum(one.correct for one in outcomes),
        call_accuracy=sum(one.called for one in outcomes) / count if count else 0.0,
        execution_accuracy=sum(one.correct for one in outcomes) / count if count else 0.0,
        speedup_upstream=_mean(one.speedup for one in kept),
        speedup_mean=_mean(one.speedup for one in timed),
        speedup_geometric=_geometric_mean(one.geometric_speedup for one in timed if one.geometric_speedup is not None),
        efficiency_mean=_mean(one.efficiency for one in kept),
        left_out=len(timed) - len(kept),
    )


def _timed(verdict: Verdict) -> list[TimedWorkload]:
    """Return the timed sizes; none if the only workload is not a size, or none was timed."""
    if not isinstance(verdict, Measured) or not verdict.timed:
        return []
    return [one for one in verdict.workloads if one.name.startswith(_PREFIX) and one.latency_us > 0]


def _efficiency(timed: Sequence[TimedWorkload], work: Mapping[int, Work], peaks: Peaks) -> float | None:
    shares = [
        max(
            known.bytes_moved / one.latency_us / 1e3 / peaks.gb_per_s,
            known.flops / one.latency_us / 1e6 / peaks.tflops,
        )
        for one in timed
        if (known := work.get(int(one.name.removeprefix(_PREFIX)))) is not None
    ]
    return 100.0 * max(shares) if shares else None


def _is_left_out(outcome: Outcome, suite: str) -> bool:
    speedup = outcome.speedup or 0.0
    if suite == "T":
        return speedup >= _MOST_SPEEDUP or speedup <= _LEAST_SPEEDUP_OF_T
    return speedup >= _MOST_SPEEDUP or (outcome.efficiency or 0.0) >= _MOST_EFFICIENCY


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def _geometric_mean(values: Iterable[float]) -> float | None:
    logarithms = [math.log(value) for value in values if value > 0]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None
