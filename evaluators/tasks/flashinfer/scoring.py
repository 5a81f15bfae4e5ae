"""FlashInfer-Bench's scores from our verdicts, and our verdicts as its traces. Pure.

Upstream scores a solution by the arithmetic mean of speedups over workloads, against the reference and against the one
baseline solution of a definition; a solution that fails on any workload scores 0 (flashinfer-bench 40e6ca78,
`TraceSet.get_solution_score`). A mean of ratios favours solutions that are far ahead on a few workloads, so geometric
means are reported, too.

- `score(judged, baseline_latency_us) -> Score`
- `traces_of(verdict, definition, workloads, ...) -> tuple[Trace, ...]`
- `latencies_of(traces, solution) -> dict[str, float]`: a baseline's latencies by workload
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from evaluators.tasks.flashinfer.trace_set import (
    Correctness,
    Environment,
    Evaluation,
    Performance,
    Status,
    Trace,
    Workload,
    number_or_word,
)
from messages.verdicts import (
    Crashed,
    DidNotBuild,
    Measured,
    Quarantined,
    Rejected,
    TimedOut,
    TimedWorkload,
    Verdict,
    Wrong,
    reason_of,
)

_US_PER_MS = 1000.0
_LOG_CHARS = 20_000


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """Means of one kind of speedup."""

    arithmetic: float
    """Arithmetic mean, as upstream."""
    geometric: float
    workloads: int
    wins: float
    """Share of the workloads with a speedup above 1."""


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a candidate over its workloads."""

    failed: int
    """Workloads on which it failed (wrong, crashed, …); any makes the means 0."""
    untimed: int = 0
    """Workloads on which it is correct with an unknown time; they are in no mean."""
    vs_reference: Mean | None = None
    """Null: nothing was timed."""
    vs_baseline: Mean | None = None
    """Null: no baseline is named, or none of its workloads were timed."""


def score(
    judged: Sequence[tuple[Sequence[str], Verdict | None]], baseline_latency_us: Mapping[str, float] | None = None
) -> Score:
    """Return the score of verdicts on some workloads.

    Args:
        judged: ids of workloads of one task, and the verdict on a candidate for it; null: it could not be evaluated.
        baseline_latency_us: latency of the named baseline solution, by workload.
    """
    known = [(names, verdict) for names, verdict in judged if verdict is not None]
    timed = {one.name: one for names, verdict in known for one in _timed(verdict, names)}
    failed = {name for names, verdict in known if _status(verdict) for name in _concerned(verdict, names)}
    workloads = {name for names, _ in judged for name in names}
    against = {
        name: baseline_latency_us[name] / one.latency_us
        for name, one in timed.items()
        if baseline_latency_us is not None and name in baseline_latency_us and one.latency_us > 0
    }
    references = [one.speedup_vs_reference for one in timed.values()]
    return Score(
        failed=len(failed),
        untimed=len(workloads - set(timed) - failed),
        vs_reference=_mean(references, is_failed=bool(failed)),
        vs_baseline=_mean(list(against.values()), is_failed=bool(failed)) if baseline_latency_us is not None else None,
    )


def traces_of(
    verdict: Verdict,
    definition: str,
    workloads: Sequence[Workload],
    *,
    solution: str,
    environment: Environment,
    timestamp: str,
) -> tuple[Trace, ...]:
    """Return a verdict as traces for upstream's tools, one for each workload with a result."""
    by_uuid = {workload.uuid: workload for workload in workloads}
    evaluations: dict[str, Evaluation] = {}
    for one in _timed(verdict, list(by_uuid)):
        evaluations[one.name] = Evaluation(
            status="PASSED",
            environment=environment,
            timestamp=timestamp,
            correctness=Correctness(max_absolute_error=number_or_word(_largest_error(verdict, one.name))),
            performance=Performance(
                latency_ms=one.latency_us / _US_PER_MS,
                reference_latency_ms=one.reference_latency_us / _US_PER_MS,
                speedup_factor=one.speedup_vs_reference,
            ),
        )
    if status := _status(verdict):
        evaluation = Evaluation(
            status=status,
            environment=environment,
            timestamp=timestamp,
            log=_log_of(verdict),
            correctness=Correctness(max_absolute_error=number_or_word(verdict.max_abs_error))
            if isinstance(verdict, Wrong)
            else None,
        )
        evaluations |= dict.fromkeys(_concerned(verdict, list(by_uuid)), evaluation)
    return tuple(
        Trace(definition=definition, workload=by_uuid[uuid], solution=solution, evaluation=evaluation)
        for uuid, evaluation in evaluations.items()
        if uuid in by_uuid
    )


def latencies_of(traces: Iterable[Trace], solution: str) -> dict[str, float]:
    """Return a solution's latencies by workload, in us: the shortest of its passed traces, as upstream."""
    found: dict[str, float] = {}
    for trace in traces:
        performance = trace.evaluation.performance if trace.evaluation else None
        if trace.solution == solution and performance is not None and performance.latency_ms > 0:
            latency_us = performance.latency_ms * _US_PER_MS
            found[trace.workload.uuid] = min(latency_us, found.get(trace.workload.uuid, math.inf))
    return found


def _timed(verdict: Verdict, workloads: Sequence[str]) -> tuple[TimedWorkload, ...]:
    """Return the speed on each workload; for a single workload it is in the verdict itself."""
    if not isinstance(verdict, Measured) or not verdict.timed:
        return ()
    if verdict.workloads or len(workloads) != 1:
        return verdict.workloads
    known = (verdict.latency_us, verdict.reference_latency_us, verdict.speedup_vs_reference, verdict.speedup_interval)
    latency_us, reference_latency_us, speedup, interval = known
    if latency_us is None or reference_latency_us is None or speedup is None or interval is None:
        return ()
    return (
        TimedWorkload(
            name=workloads[0],
            latency_us=latency_us,
            reference_latency_us=reference_latency_us,
            speedup_vs_reference=speedup,
            speedup_interval=interval,
        ),
    )


def _status(verdict: Verdict) -> Status | None:
    """Return upstream's status of a negative verdict; None: it is positive, or no time could be determined."""
    match verdict:
        case Wrong():
            return "INCORRECT_NUMERICAL"
        case DidNotBuild():
            return "COMPILE_ERROR"
        case TimedOut():
            return "TIMEOUT"
        case Crashed() | Rejected() | Quarantined():
            return "RUNTIME_ERROR"
        case _:
            return None


def _concerned(verdict: Verdict, workloads: Sequence[str]) -> Sequence[str]:
    """Return the workloads of a negative verdict: the one that it names, or all."""
    match verdict:
        case Wrong(workload=name) | Crashed(workload=name) | TimedOut(workload=name) if name:
            return (name,)
        case Rejected(workload=name) | Quarantined(workload=name) if name:
            return (name,)
        case _:
            return workloads


def _largest_error(verdict: Verdict, workload: str) -> float:
    checks = verdict.checks if isinstance(verdict, Measured) else ()
    return max((check.max_abs_error for check in checks if check.workload in {"", workload}), default=0.0)


def _log_of(verdict: Verdict) -> str:
    log = verdict.log if isinstance(verdict, DidNotBuild | Crashed) else ""
    return "\n".join(part for part in (reason_of(verdict), log) if part)[:_LOG_CHARS]


def _mean(speedups: Sequence[float], *, is_failed: bool) -> Mean | None:
    count = len(speedups)
    if is_failed:
        return Mean(arithmetic=0.0, geometric=0.0, workloads=count, wins=0.0)
    if not count:
        return None
    return Mean(
        arithmetic=sum(speedups) / count,
        geometric=math.exp(sum(map(math.log, speedups)) / count),
        workloads=count,
        wins=sum(one > 1.0 for one in speedups) / count,
    )
