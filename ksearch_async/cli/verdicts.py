"""What `ksearch eval` prints of evaluations: lines for people, objects for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from ksearch_async.cli.profiles import profile_objects, profile_table
from ksearch_async.evaluation import Evaluation
from ksearch_async.workload_table import workload_table
from messages.verdicts import (
    LIBRARY_CALL_RULE,
    Crashed,
    DidNotBuild,
    Interval,
    Measured,
    Outpaced,
    Quarantined,
    Rejected,
    Scored,
    TimedOut,
    TimedWorkload,
    Unstable,
    Verdict,
    Wrong,
    fate_of,
    printed_by,
    reason_of,
    score_text,
)


def as_object(evaluation: Evaluation) -> dict[str, Any]:
    """Return what `--json` prints of an evaluation."""
    verdict = evaluation.verdict
    told: dict[str, Any] = {"verdict": evaluation.fate, "reason": evaluation.reason, "timed": False}
    if isinstance(verdict, Scored):
        told |= {"score": verdict.score, "metrics": verdict.metrics}
    elif isinstance(verdict, Measured):
        told |= {"checked_calls": len(verdict.checks), "deterministic": verdict.deterministic, "notes": verdict.notes}
        told["flags"] = verdict.flags
        told |= _times(verdict)
    elif isinstance(verdict, Outpaced | Unstable | Quarantined):
        told["speedup_interval"] = _pair(verdict.speedup_interval)
    if isinstance(verdict, Measured | Outpaced) and verdict.workloads:
        told["workloads"] = [_workload(one) for one in verdict.workloads]
    elif isinstance(verdict, Wrong | Crashed | TimedOut | Rejected | Unstable | Quarantined) and verdict.workload:
        told["workload"] = verdict.workload
    if printed := printed_by(verdict):
        told["printed"] = printed
    if evaluation.profile:
        told["profile"] = profile_objects(evaluation.profile)
    return told | {
        "device": evaluation.device,
        "isolation": evaluation.isolation,
        "marks": evaluation.marks,
        "task": evaluation.task,
        "language": evaluation.language,
        "candidate_id": evaluation.candidate_id,
        "purpose": evaluation.purpose,
        "seconds": round(evaluation.seconds, 3),
        "build_s": round(evaluation.build_s, 3),
        "judge_s": round(evaluation.judge_s, 3),
    }


def _workload(timed: TimedWorkload) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": timed.name,
        "pairs": timed.pairs,
        "latency_us": timed.latency_us,
        "reference_latency_us": timed.reference_latency_us,
        "speedup_vs_reference": timed.speedup_vs_reference,
        "speedup_interval": _pair(timed.speedup_interval),
    }
    if timed.baseline_interval is not None:
        told |= {
            "baseline_latency_us": timed.baseline_latency_us,
            "speedup_vs_baseline": timed.speedup_vs_baseline,
            "baseline_interval": _pair(timed.baseline_interval),
        }
    return told


def _times(verdict: Measured) -> dict[str, Any]:
    if not verdict.timed or verdict.speedup_interval is None:
        return {}
    told: dict[str, Any] = {
        "timed": True,
        "measure": verdict.measure,
        "pairs": verdict.pairs,
        "latency_us": verdict.latency_us,
        "reference_latency_us": verdict.reference_latency_us,
        "speedup_vs_reference": verdict.speedup_vs_reference,
        "speedup_interval": _pair(verdict.speedup_interval),
    }
    if verdict.baseline and verdict.baseline_interval is not None:
        told |= {
            "baseline": verdict.baseline,
            "baseline_latency_us": verdict.baseline_latency_us,
            "speedup_vs_baseline": verdict.speedup_vs_baseline,
            "baseline_interval": _pair(verdict.baseline_interval),
        }
    return told


def _pair(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def lines_of(evaluation: Evaluation) -> list[str]:
    """Return what is printed of an evaluation, line by line."""
    verdict = evaluation.verdict
    told = _lines_of(verdict, evaluation.device)
    told += printed_lines(verdict)
    told += [f"warning    {mark}" for mark in evaluation.marks]
    told += profile_table(evaluation.profile)
    if evaluation.isolation:
        told.append(f"isolation  {', '.join(evaluation.isolation)}")
    told.append(f"took       {evaluation.seconds:.1f} s: building {evaluation.build_s:.1f} s{_of_judge(evaluation)}")
    return told


def printed_lines(verdict: Verdict) -> list[str]:
    """Return what a candidate printed that did not crash, each line behind a margin."""
    lines = printed_by(verdict).strip().splitlines()
    return [f"{'printed' if not at else '':<11}| {line}" for at, line in enumerate(lines)]


def _of_judge(evaluation: Evaluation) -> str:
    return f", checking and timing {evaluation.judge_s:.1f} s" if evaluation.judge_s else ""


def _lines_of(verdict: Verdict, device: str) -> list[str]:
    if isinstance(verdict, Scored):
        metrics = [f"           {name} = {value}" for name, value in verdict.metrics.items()]
        return ["verdict    scored", f"score      {score_text(verdict.score)}", *metrics, *verdict.notes]
    if not isinstance(verdict, Measured):
        return _failed_lines(verdict)
    interval = verdict.speedup_interval
    if not verdict.timed or interval is None:
        return _untimed_lines(verdict, device)
    return [
        f"verdict    measured: correct in {len(verdict.checks)} checked calls",
        f"speedup    {verdict.speedup_vs_reference:.2f}x the reference {_said(interval)} "
        f"(95 % interval{_over(verdict)}, {verdict.pairs} pairs)",
        *_baseline_lines(verdict),
        f"latency    {verdict.latency_us:.1f} us, the reference {verdict.reference_latency_us:.1f} us; {device}",
        *workload_table(verdict.workloads),
        *_common_lines(verdict, verdict.notes),
    ]


def _over(verdict: Measured) -> str:
    return f", geometric mean over {len(verdict.workloads)} workloads" if verdict.workloads else ""


def _failed_lines(verdict: Verdict) -> list[str]:
    log = verdict.log.rstrip() if isinstance(verdict, Crashed | DidNotBuild) else ""
    told = [f"verdict    {fate_of(verdict)}", f"reason     {reason_of(verdict)}"]
    if more := log.removeprefix(reason_of(verdict)).strip("\n"):
        told += [f"  {line}" for line in more.splitlines()]
    if isinstance(verdict, Outpaced | Unstable | Quarantined) and verdict.speedup_interval.high > 0:
        told.append(f"speedup    {_said(verdict.speedup_interval)} (95 % interval; it gives no credit)")
    if isinstance(verdict, Outpaced):
        told += workload_table(verdict.workloads)
    return told


def hint_on(verdict: Verdict) -> str:
    """Return what can be done about a verdict by whoever asked for it; empty: nothing but another source."""
    if isinstance(verdict, Rejected) and verdict.rule == LIBRARY_CALL_RULE:
        return "--library-calls allow permits it, --allow-library NAME what is named"
    if isinstance(verdict, Unstable):
        return "it was found correct; try again when less else runs here"
    return ""


def _baseline_lines(verdict: Measured) -> list[str]:
    if not verdict.baseline or verdict.baseline_interval is None:
        return []
    return [
        f"baseline   {verdict.speedup_vs_baseline:.2f}x {verdict.baseline} {_said(verdict.baseline_interval)}, "
        f"which takes {verdict.baseline_latency_us:.1f} us"
    ]


def _untimed_lines(verdict: Measured, device: str) -> list[str]:
    """Say that it is correct, why it was not timed, and what else the evaluator notes."""
    why_not = next((note for note in verdict.notes if note.startswith("not timed")), "not timed")
    return [
        f"verdict    measured: correct, {why_not}",
        f"checks     {len(verdict.checks)} calls; {device}",
        *_common_lines(verdict, [note for note in verdict.notes if note != why_not]),
    ]


def _common_lines(verdict: Measured, notes: Sequence[str]) -> list[str]:
    same = {
        None: (),
        True: ("bits       the same in two calls on the same inputs",),
        False: ("bits       differ between two calls on the same inputs, within the tolerance",),
    }
    return [
        *same[verdict.deterministic],
        *(f"note       {note}" for note in notes),
        *(f"flag       {flag}" for flag in verdict.flags),
    ]


def _said(interval: Interval) -> str:
    return f"[{interval.low:.2f}, {interval.high:.2f}]"


def repeats_object(repeats: Sequence[Evaluation]) -> dict[str, Any]:
    """Return what `--json --repeat N` prints of the evaluations of one source."""
    first = next((one for one in repeats if not one.good), repeats[0])
    told: dict[str, Any] = {"verdict": first.fate, "reason": first.reason}
    found = [one.speedup_vs_reference for one in repeats if one.speedup_vs_reference is not None]
    if found:
        told["speedups"] = {
            "median": median(found),
            "lowest": min(found),
            "highest": max(found),
            "spread": _spread(found),
            "intervals_that_cover_the_median": _covering(repeats, median(found)),
        }
    return told | {"repeats": [as_object(one) for one in repeats]}


def repeats_lines(repeats: Sequence[Evaluation]) -> list[str]:
    """Return what `--repeat N` prints below the last evaluation of a source."""
    found = [one.speedup_vs_reference for one in repeats if one.speedup_vs_reference is not None]
    others = [one.fate for one in repeats if one.speedup_vs_reference is None]
    told = [f"repeats    {len(repeats)} in fresh processes: {', '.join([*(f'{x:.2f}x' for x in found), *others])}"]
    if len(found) > 1:
        middle = median(found)
        told.append(
            f"spread     {100 * _spread(found):.1f} % from lowest to highest; the median is {middle:.2f}x, "
            f"which {_covering(repeats, middle)} of {len(found)} intervals cover"
        )
    return told


def _spread(speedups: Sequence[float]) -> float:
    """Return how far apart the extremes lie, as a part of the median."""
    return (max(speedups) - min(speedups)) / median(speedups)


def _covering(repeats: Sequence[Evaluation], value: float) -> int:
    intervals = [one.speedup_interval for one in repeats]
    return sum(1 for interval in intervals if interval is not None and interval[0] <= value <= interval[1])
