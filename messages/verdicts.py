"""An evaluator's verdict: one struct per fate, a closed vocabulary.

A bad candidate is data and gets a verdict. A broken evaluator is an error and gets none (`JobLost`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from messages.base import Message


class Interval(Message, frozen=True, kw_only=True):
    """A 95 % bootstrap interval."""

    low: float
    high: float


class CallCheck(Message, frozen=True, kw_only=True):
    """How one checked call compared with the reference."""

    family: str
    """Where the inputs came from: `given` (the task's own generator), `centred`, …"""
    max_abs_error: float
    error_ratio: float
    """Largest error divided by what the tolerance allows; ≤ 1 passes."""


class Measured(Message, frozen=True, kw_only=True, tag="measured"):
    """Correct on every call. `timed` is false where time means nothing (an interpreter); then no speedup is given."""

    timed: bool
    latency_us: float | None = None
    """Median over the timed calls, by the judge's clock less the cost of an empty call."""
    reference_latency_us: float | None = None
    """The same for the reference, interleaved with the candidate's calls."""
    speedup_vs_reference: float | None = None
    """Median over pairs of reference latency / candidate latency."""
    speedup_interval: Interval | None = None
    """Of `speedup_vs_reference`; its lower bound is the credit."""
    pairs: int = 0
    checks: tuple[CallCheck, ...] = ()
    reference_dtype: str = "float64"
    """Precision in which the expected values were computed."""
    notes: tuple[str, ...] = ()


class Scored(Message, frozen=True, kw_only=True, tag="scored"):
    """Measured by the task's own evaluator: a score, larger is better, and no speedup."""

    score: float
    """Its `combined_score`; finite. It is the credit."""
    metrics: dict[str, float | str] = msgspec.field(default_factory=dict)
    """All that the evaluator returned, the score included; what is no finite number stands as text."""
    notes: tuple[str, ...] = ()
    """What the evaluator has to say to a model, bounded."""


class Outpaced(Message, frozen=True, kw_only=True, tag="outpaced"):
    """Correct, but clearly slower than what was asked for; timing stopped early and gives no credit."""

    reason: str
    speedup_interval: Interval


class Unstable(Message, frozen=True, kw_only=True, tag="unstable"):
    """Correct, but its time could not be told within the allowed width."""

    reason: str
    speedup_interval: Interval


class Wrong(Message, frozen=True, kw_only=True, tag="wrong"):
    """Its output differs from the reference's."""

    reason: str
    family: str = ""
    wrong_elements: int = 0
    elements: int = 0
    first_wrong: tuple[int, ...] = ()
    """Index of the first wrong element in row-major order."""
    max_abs_error: float = 0.0
    patterns: tuple[str, ...] = ()
    """What the wrong places have in common: `unwritten`, `tail columns`, `constant factor`, …"""


class DidNotBuild(Message, frozen=True, kw_only=True, tag="did_not_build"):
    """The compiler refused it."""

    reason: str
    """The first error, in one line."""
    log: str = ""
    """The first errors with their source lines, bounded."""


class Crashed(Message, frozen=True, kw_only=True, tag="crashed"):
    """Its process died, or it returned an error code."""

    reason: str
    stage: str = ""
    log: str = ""


class TimedOut(Message, frozen=True, kw_only=True, tag="timed_out"):
    """It was killed at a wall-clock limit."""

    reason: str
    stage: str
    limit_s: float


class Rejected(Message, frozen=True, kw_only=True, tag="rejected"):
    """It broke a rule."""

    reason: str
    rule: str


class Quarantined(Message, frozen=True, kw_only=True, tag="quarantined"):
    """Too good to be true; waits for an audit and gets no credit."""

    reason: str
    speedup_interval: Interval


Verdict: TypeAlias = (
    Measured | Scored | Outpaced | Unstable | Wrong | DidNotBuild | Crashed | TimedOut | Rejected | Quarantined
)

Fate: TypeAlias = str
"""The tag of a verdict, `unusable` for an answer that held no candidate, or `declined` for one that wanted none."""


GOOD_FATES: frozenset[Fate] = frozenset({"measured", "scored"})
"""Fates of candidates that do what the task asks."""
NO_FAILURES: frozenset[Fate] = GOOD_FATES | {"declined"}
"""Fates that are not held against an action."""


def fate_of(verdict: Verdict) -> Fate:
    """Return the verdict's tag."""
    return str(verdict.__struct_config__.tag)


def reason_of(verdict: Verdict) -> str:
    """Return why the verdict is what it is; empty for `measured` and `scored`."""
    return "" if isinstance(verdict, Measured | Scored) else verdict.reason


def credit_of(verdict: Verdict) -> float | None:
    """Return what counts: the lower bound of a timed candidate's speedup, or a score; else none."""
    if isinstance(verdict, Scored):
        return verdict.score
    if isinstance(verdict, Measured) and verdict.timed and verdict.speedup_interval is not None:
        return verdict.speedup_interval.low
    return None


def score_text(score: float) -> str:
    """Return a score for people and models, with six significant digits."""
    return f"{score:.6g}"


def worth_text(credit: float | None, speedup: float | None) -> str:
    """Say in a word or two what a good candidate is worth: its speedup, or its score."""
    if credit is None:
        return "correct, not timed"
    return f"score {score_text(credit)}" if speedup is None else f"{speedup:.2f}x"


def outcome_line(verdict: Verdict) -> str:
    """Say the verdict in one line for people and models."""
    if isinstance(verdict, Scored):
        return f"scored: {score_text(verdict.score)}"
    if not isinstance(verdict, Measured):
        return f"{fate_of(verdict)}: {verdict.reason}"
    if verdict.speedup_interval is None or verdict.speedup_vs_reference is None or verdict.latency_us is None:
        return "correct, not timed"
    interval = verdict.speedup_interval
    return (
        f"measured: {verdict.speedup_vs_reference:.2f}x the reference "
        f"[{interval.low:.2f}, {interval.high:.2f}], {verdict.latency_us:.1f} us"
    )
