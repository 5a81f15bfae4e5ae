"""`ksearch eval`: builds, checks and times one source file, without a search."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread

from evaluators.builder import LocalBuilder
from evaluators.local import LocalEvaluator
from evaluators.tasks import load_task
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import put, put_json
from ksearch_async.launch import find_target
from ksearch_async.logs import configure_logs
from ksearch_async.sources import read_source
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import Measured, Verdict, fate_of, reason_of

_JOB_ID = "eval-1"
_RUN_ID = "eval"


def eval_command(
    task: str,
    source: Path,
    /,
    *,
    language: Literal["cpp"] = "cpp",
    as_json: JsonFlag = False,
) -> int:
    """Build, check and time one source file against a task.

    Args:
        task: A bundled problem's name, or a problem file in KernelBench's format.
        source: A source file, or a run's `best` folder (or one of its `candidates/` folders).
        language: What it is written in.
        as_json: Print exactly one JSON object.
    """
    configure_logs()
    spec = load_task(task)
    candidate = read_source(source, language)
    target = find_target(language)
    verdict, device = anyio.run(_judged, spec, candidate, target)
    if as_json:
        put_json(_as_object(verdict, device))
    else:
        put("\n".join(_lines(verdict, device)))
    return exits.FOUND if isinstance(verdict, Measured) else exits.NOT_FOUND


async def _judged(task: TaskSpec, candidate: Candidate, target: Target) -> tuple[Verdict, str]:
    """Return the verdict, and the device that it holds for."""
    with tempfile.TemporaryDirectory(prefix="ksearch-eval-") as folder:
        artifacts = Path(folder)
        build = BuildCandidate(job_id=_JOB_ID, run_id=_RUN_ID, candidate=candidate, target=target)
        report = await LocalBuilder(artifacts).build(build)
        if not isinstance(report.outcome, Built):
            return report.outcome, target.device
        job = EvaluateCandidate(
            job_id=_JOB_ID,
            run_id=_RUN_ID,
            task=task,
            candidate=candidate,
            artifact_id=report.outcome.artifact_id,
            target=target,
        )
        evaluator = LocalEvaluator(artifacts, slots=1)
        try:
            judged = await evaluator.evaluate(job)
        finally:
            await evaluator.aclose()
        return judged.verdict, judged.device


def _as_object(verdict: Verdict, device: str) -> dict[str, Any]:
    told: dict[str, Any] = {"verdict": fate_of(verdict), "reason": reason_of(verdict), "timed": False}
    if isinstance(verdict, Measured) and verdict.timed and verdict.speedup_interval is not None:
        told |= {
            "timed": True,
            "latency_us": verdict.latency_us,
            "reference_latency_us": verdict.reference_latency_us,
            "speedup_vs_reference": verdict.speedup_vs_reference,
            "speedup_interval": [verdict.speedup_interval.low, verdict.speedup_interval.high],
            "device": device,
        }
    return told


def _lines(verdict: Verdict, device: str) -> list[str]:
    if not isinstance(verdict, Measured):
        log = getattr(verdict, "log", "")
        return [f"verdict    {fate_of(verdict)}", f"reason     {verdict.reason}", *([log.rstrip()] if log else [])]
    interval = verdict.speedup_interval
    if not verdict.timed or interval is None:
        return ["verdict    measured: correct, not timed"]
    return [
        f"verdict    measured: correct in {len(verdict.checks)} checked calls",
        f"speedup    {verdict.speedup_vs_reference:.2f}x the reference [{interval.low:.2f}, {interval.high:.2f}] "
        f"(95 % interval, {verdict.pairs} pairs)",
        f"latency    {verdict.latency_us:.1f} us, the reference {verdict.reference_latency_us:.1f} us; {device}",
    ]
