"""`ksearch eval`: builds, checks and times one source file, without a search."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal

import anyio

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import put, put_json
from ksearch_async.config import ProgramSettings, RunConfig
from ksearch_async.logs import configure_logs
from ksearch_async.sources import read_source
from ksearch_async.workers import find_target, open_workers, read_task
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Candidate, TaskSpec
from messages.verdicts import GOOD_FATES, Measured, Scored, Verdict, fate_of, reason_of, score_text

_JOB_ID = "eval-1"
_RUN_ID = "eval"


def eval_command(
    task: str,
    source: Path,
    /,
    *,
    language: Literal["cpp"] = "cpp",
    score_with: str | None = None,
    eval_timeout: float = ProgramSettings().timeout_s,
    eval_memory: float = ProgramSettings().memory_gib,
    as_json: JsonFlag = False,
) -> int:
    """Build, check and time one source file against a task.

    Args:
        task: A bundled problem's name, or a problem file in KernelBench's format; with --score-with a program.
        source: A source file, or a run's `best` folder (or one of its `candidates/` folders).
        language: What it is written in.
        score_with: The task is a Python program, and the `evaluate(program_path)` of this file scores it.
        eval_timeout: Seconds that scoring a program may take.
        eval_memory: Gibibytes that a program may take.
        as_json: Print exactly one JSON object.
    """
    configure_logs()
    program = ProgramSettings(evaluator=score_with, timeout_s=eval_timeout, memory_gib=eval_memory)
    config = RunConfig(task=task, language=language, program=program)
    spec = read_task(config)
    candidate = read_source(source, config.candidate_language)
    verdict, device = anyio.run(_judged, spec, candidate)
    if as_json:
        put_json(_as_object(verdict, device))
    else:
        put("\n".join(_lines(verdict, device)))
    return exits.FOUND if fate_of(verdict) in GOOD_FATES else exits.NOT_FOUND


async def _judged(task: TaskSpec, candidate: Candidate) -> tuple[Verdict, str]:
    """Return the verdict, and the device that it holds for.

    Raises:
        ConfigError: there is no usable compiler.
        messages.errors.EvaluatorError: the evaluator itself failed.
    """
    target = await find_target(task, candidate.language)
    with tempfile.TemporaryDirectory(prefix="ksearch-eval-") as folder:
        async with open_workers(task, candidate.language, Path(folder), evaluators=1) as workers:
            build = BuildCandidate(job_id=_JOB_ID, run_id=_RUN_ID, candidate=candidate, target=target)
            report = await workers.builder.build(build)
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
            judged = await workers.evaluator.evaluate(job)
            return judged.verdict, judged.device


def _as_object(verdict: Verdict, device: str) -> dict[str, Any]:
    told: dict[str, Any] = {"verdict": fate_of(verdict), "reason": reason_of(verdict), "timed": False}
    if isinstance(verdict, Scored):
        told |= {"score": verdict.score, "metrics": verdict.metrics, "device": device}
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
    if isinstance(verdict, Scored):
        metrics = [f"           {name} = {value}" for name, value in verdict.metrics.items()]
        return ["verdict    scored", f"score      {score_text(verdict.score)}", *metrics, *verdict.notes]
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
