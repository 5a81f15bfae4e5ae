"""Verdicts on candidates, one struct per outcome, and kernel profiles.

A bad candidate is data and gets a verdict. A broken evaluator is an error and gets none (`JobLost`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from messages.base import Message
from messages.tasks import Measure


class ProfiledKernel(Message, frozen=True, kw_only=True):
    """All launches of one kernel in one call that have the same grid and block."""

    name: str
    """As its author wrote it, with the types of templates; `(copy)` and `(fill)` are the driver's own."""
    launches: int
    time_us: float
    """Of all of them together: the median over the calls that were recorded."""
    is_own: bool
    """True if the candidate brought or built it; false for a library's."""
    grid: tuple[int, int, int] = (0, 0, 0)
    """Blocks."""
    block: tuple[int, int, int] = (0, 0, 0)
    """Threads."""
    registers: int = 0
    """Per thread."""
    shared_bytes: int = 0
    """Per block."""
    local_bytes: int = 0
    """Per thread: spilled registers, and arrays that the compiler could not keep in registers."""
    occupancy: float = 0.0
    """Share of a multiprocessor's threads that can be there at once, by registers, shared memory and block size."""
    waves: float = 0.0
    """How often the GPU must be filled with blocks: 1.1 leaves it nine tenths idle in the second."""


class WorkloadProfile(Message, frozen=True, kw_only=True):
    """GPU activity of a call on one workload."""

    workload: str = ""
    """Empty where there is one."""
    span_us: float
    """From the first kernel's beginning to the last one's end: the median over the calls that were recorded."""
    busy_us: float
    """Of that, for how long the GPU worked: kernels that run beside each other count once."""
    kernels_us: float
    """The time of all kernels together."""
    own_us: float
    """Of that, the candidate's own kernels'."""
    kernels: tuple[ProfiledKernel, ...]
    """The longest first."""
    left_out: int = 0
    """Further kernels that are not told of."""

    @property
    def idle_share(self) -> float:
        """Share of the span in which the GPU did nothing for it."""
        return 1 - self.busy_us / self.span_us if self.span_us else 0.0

    @property
    def own_share(self) -> float:
        """Share of all kernels' time that is the candidate's own kernels'."""
        return self.own_us / self.kernels_us if self.kernels_us else 0.0


class Interval(Message, frozen=True, kw_only=True):
    """A 95 % interval of a median; see docs/how-we-measure.md."""

    low: float
    high: float


class CallCheck(Message, frozen=True, kw_only=True):
    """One checked call compared with the reference."""

    family: str
    """Where the inputs came from: `given` (the task's own generator), `centred`, …"""
    max_abs_error: float
    error_ratio: float
    """Largest error divided by what the tolerance allows; ≤ 1 passes."""
    own_error_ratio: float = 0.0
    """Largest error divided by what the reference itself loses in the task's dtype, by one rounding at least."""
    workload: str = ""
    """On which of several; empty where there is one."""


class TimedWorkload(Message, frozen=True, kw_only=True):
    """Speed on one of several workloads; each field as in `Measured`."""

    name: str
    latency_us: float
    reference_latency_us: float
    speedup_vs_reference: float
    speedup_interval: Interval
    baseline_latency_us: float | None = None
    speedup_vs_baseline: float | None = None
    baseline_interval: Interval | None = None
    pairs: int = 0


class Measured(Message, frozen=True, kw_only=True, tag="measured"):
    """Correct on every call. `timed` is false where time means nothing (an interpreter); then no speedup is given.

    Of several workloads, latencies and speedups are geometric means over them; see docs/how-we-measure.md.
    """

    timed: bool
    latency_us: float | None = None
    """Median over the timed calls: by the judge's clock less the cost of an empty call, on a GPU between two events."""
    reference_latency_us: float | None = None
    """The same for the reference, interleaved with the candidate's calls."""
    speedup_vs_reference: float | None = None
    """Median over blocks of two pairs, of reference latency / candidate latency."""
    speedup_interval: Interval | None = None
    """Of `speedup_vs_reference`; its lower bound is the credit."""
    baseline: str = ""
    """Name of a second program that was timed in the same rounds, `torch.compile`; empty: none was."""
    baseline_latency_us: float | None = None
    speedup_vs_baseline: float | None = None
    baseline_interval: Interval | None = None
    """Of `speedup_vs_baseline`."""
    measure: Measure = "device"
    """Definition of latency here."""
    deterministic: bool | None = None
    """True if two calls on the same inputs gave the same bits; null: not looked at."""
    pairs: int = 0
    checks: tuple[CallCheck, ...] = ()
    reference_dtype: str = "float64"
    """Precision in which the expected values were computed."""
    notes: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    """Constructs in its text that a person may want to look at; they decide nothing."""
    workloads: tuple[TimedWorkload, ...] = ()
    """Each of several workloads that were timed; empty where there is one."""
    profile: tuple[WorkloadProfile, ...] = ()
    """GPU activity of a confirmed candidate, on each workload. Nothing rests on it."""
    printed: str = ""
    """The end of what the candidate printed, bounded. Text of its own: nothing rests on it."""


class Scored(Message, frozen=True, kw_only=True, tag="scored"):
    """Measured by the task's own evaluator: a score, larger is better, and no speedup."""

    score: float
    """Its `combined_score`; finite. It is the credit."""
    metrics: dict[str, float | str] = msgspec.field(default_factory=dict)
    """All that the evaluator returned, the score included; what is no finite number stands as text."""
    notes: tuple[str, ...] = ()
    """The evaluator's notes for a model, bounded."""


class Outpaced(Message, frozen=True, kw_only=True, tag="outpaced"):
    """Correct as far as it was checked, but clearly slower than what was asked for; never the best."""

    reason: str
    speedup_interval: Interval
    workloads: tuple[TimedWorkload, ...] = ()
    """Times so far of each of several workloads."""
    printed: str = ""
    """As in `Measured`."""


class Unstable(Message, frozen=True, kw_only=True, tag="unstable"):
    """Correct, but its time could not be determined within the allowed width."""

    reason: str
    speedup_interval: Interval
    workload: str = ""
    """On which of several; empty where there is one, or where it is all of them."""


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
    """Common pattern of the wrong places: `unwritten`, `tail columns`, `constant factor`, …"""
    workload: str = ""
    """On which of several; empty where there is one, or where it is one that is held out."""
    printed: str = ""
    """As in `Measured`; empty where a held-out workload was called."""


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
    workload: str = ""
    """As in `Wrong`."""


class TimedOut(Message, frozen=True, kw_only=True, tag="timed_out"):
    """It was killed at a wall-clock limit."""

    reason: str
    stage: str
    limit_s: float
    workload: str = ""
    """As in `Wrong`."""


class Rejected(Message, frozen=True, kw_only=True, tag="rejected"):
    """It broke a rule."""

    reason: str
    rule: str
    workload: str = ""
    """As in `Wrong`."""


LIBRARY_CALL_RULE = "library call"
"""The rule of what had a library do the work; the others are named where they are found broken."""


class Quarantined(Message, frozen=True, kw_only=True, tag="quarantined"):
    """Too good to be true; waits for an audit and gets no credit."""

    reason: str
    speedup_interval: Interval
    workload: str = ""
    """As in `Wrong`."""


Verdict: TypeAlias = (
    Measured | Scored | Outpaced | Unstable | Wrong | DidNotBuild | Crashed | TimedOut | Rejected | Quarantined
)

Fate: TypeAlias = str
"""The tag of a verdict, `unusable` for an answer that held no candidate, `declined` for one that wanted none, or `lost`
where the infrastructure brought none."""


GOOD_FATES: frozenset[Fate] = frozenset({"measured", "scored"})
"""Statuses of candidates that do what the task asks."""
CORRECT_FATES: frozenset[Fate] = GOOD_FATES | {"outpaced", "unstable"}
"""Statuses of candidates that give right results, though their speed may not be known exactly."""
REFUTING_FATES: frozenset[Fate] = frozenset(
    {"wrong", "did_not_build", "crashed", "timed_out", "rejected", "quarantined"}
)
"""Statuses in a confirmation that take a candidate's good verdict back; after any other it is correct still."""
NO_FAILURES: frozenset[Fate] = GOOD_FATES | {"declined", "lost"}
"""Statuses that are not held against an action."""


_MAX_WORKLOAD_LINES, _MAX_NAME_CHARS = 12, 60


def fate_of(verdict: Verdict) -> Fate:
    """Return the verdict's tag."""
    return str(verdict.__struct_config__.tag)


def reason_of(verdict: Verdict) -> str:
    """Return why the verdict is what it is; empty for `measured` and `scored`."""
    return "" if isinstance(verdict, Measured | Scored) else verdict.reason


def printed_by(verdict: Verdict) -> str:
    """Return what a candidate printed that did not crash; empty if that is unknown or nothing."""
    return verdict.printed if isinstance(verdict, Measured | Outpaced | Wrong) else ""


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


def worth_text(credit: float | None, speedup: float | None, *, is_least: bool = False) -> str:
    """Say in a word or two what a good candidate is worth: its speedup, or what it has at least, or its score."""
    if credit is None:
        return "correct, not timed"
    if speedup is None:
        return f"score {score_text(credit)}"
    return f"at least {speedup:.2f}x" if is_least else f"{speedup:.2f}x"


def workload_lines(verdict: Verdict) -> tuple[str, ...]:
    """Say in one line each how fast it is on each of several workloads, the slowest first; bounded. Else nothing."""
    timed = verdict.workloads if isinstance(verdict, Measured | Outpaced) else ()
    by_speedup = sorted(timed, key=lambda one: one.speedup_vs_reference)
    shown, others = by_speedup[:_MAX_WORKLOAD_LINES], by_speedup[_MAX_WORKLOAD_LINES:]
    lines = [f"{one.name[:_MAX_NAME_CHARS]}: {_workload_text(one)}" for one in shown]
    if others:
        low, high = others[0].speedup_vs_reference, others[-1].speedup_vs_reference
        lines.append(f"{len(others)} more workloads: {low:.2f}x to {high:.2f}x")
    return tuple(lines)


def _workload_text(timed: TimedWorkload) -> str:
    interval = timed.speedup_interval
    return (
        f"{timed.speedup_vs_reference:.2f}x the reference [{interval.low:.2f}, {interval.high:.2f}], "
        f"{timed.latency_us:.1f} us against {timed.reference_latency_us:.1f} us"
    )


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
