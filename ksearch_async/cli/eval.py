"""`ksearch eval`: builds, checks and times one source file, without a search."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import anyio
import msgspec

from evaluators.languages.triton.ahead import AheadReport, check_architecture, compile_ahead
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import put, put_json
from ksearch_async.config import KernelLanguage, ProgramSettings, RunConfig
from ksearch_async.logs import configure_logs
from ksearch_async.refusals import refusal
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
    language: KernelLanguage | None = None,
    compile_for: str | None = None,
    score_with: str | None = None,
    eval_timeout: float = ProgramSettings().timeout_s,
    eval_memory: float = ProgramSettings().memory_gib,
    as_json: JsonFlag = False,
) -> int:
    """Build, check and time one source file against a task.

    Args:
        task: A bundled problem's name, or a problem file in KernelBench's format; with --score-with a program.
        source: A source file, or a run's `best` folder (or one of its `candidates/` folders).
        language: What it is written in. [default: triton for files that end in .py, else cpp]
        compile_for: Evaluate nothing: compile the kernels of a Triton program for this architecture (sm_90, ...). Needs
            no GPU, and says nothing about numbers or speed.
        score_with: The task is a Python program, and the `evaluate(program_path)` of this file scores it.
        eval_timeout: Seconds that scoring a program may take.
        eval_memory: Gibibytes that a program may take.
        as_json: Print exactly one JSON object.
    """
    configure_logs()
    program = ProgramSettings(evaluator=score_with, timeout_s=eval_timeout, memory_gib=eval_memory)
    config = RunConfig(task=task, language=language or _language_of(source), program=program)
    spec = read_task(config)
    candidate = read_source(source, config.candidate_language)
    if compile_for is not None:
        return _compile(spec, candidate, compile_for, as_json=as_json)
    verdict, device = anyio.run(_judged, spec, candidate)
    if as_json:
        put_json(_as_object(verdict, device))
    else:
        put("\n".join(_lines(verdict, device)))
    return exits.FOUND if fate_of(verdict) in GOOD_FATES else exits.NOT_FOUND


def _language_of(source: Path) -> KernelLanguage:
    return "triton" if source.suffix == ".py" else "cpp"


def _compile(task: TaskSpec, candidate: Candidate, arch: str, *, as_json: bool) -> int:
    """Compile instead of evaluating, and say how that went."""
    if candidate.language != "triton":
        raise refusal(f"--compile-for is for Triton programs, and this one is written in {candidate.language}")
    report = anyio.run(_compiled, task, candidate, arch)
    if as_json:
        put_json({"compiles": report.compiles, "reason": report.reason, **msgspec.to_builtins(report)})
    else:
        put("\n".join(_compilation_lines(report)))
    return exits.FOUND if report.compiles else exits.NOT_FOUND


async def _compiled(task: TaskSpec, candidate: Candidate, arch: str) -> AheadReport:
    """Return what came of compiling.

    Raises:
        ConfigError: the task cannot be used, or there is no such architecture.
        messages.errors.EvaluatorError: judge or compiler failed.
    """
    check_architecture(arch)
    with tempfile.TemporaryDirectory(prefix="ksearch-eval-") as folder:
        async with open_workers(task, candidate.language, Path(folder), evaluators=1) as workers:
            description = await workers.describe()
        return await compile_ahead(candidate, description.tensors, arch=arch)


def _compilation_lines(report: AheadReport) -> list[str]:
    if report.compiles:
        lines = [f"compiles   for {report.arch}; that says nothing about numbers or speed"]
    else:
        lines = [f"compiles   not for {report.arch}: {report.reason}"]
    for kernel in report.kernels:
        if kernel.error:
            lines += [
                f"kernel     {kernel.name}: does not compile",
                *(f"  {line}" for line in kernel.error.splitlines()),
            ]
        else:
            lines.append(
                f"kernel     {kernel.name}: {kernel.registers} registers, {kernel.spilled_bytes} bytes spilled, "
                f"{kernel.shared_bytes} bytes of shared memory, {kernel.warps} warps, {kernel.stages} stages"
            )
    return [*lines, *report.error.splitlines()]


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
    if isinstance(verdict, Measured):
        told |= {"checked_calls": len(verdict.checks), "notes": verdict.notes, "device": device}
    if isinstance(verdict, Measured) and verdict.timed and verdict.speedup_interval is not None:
        told |= {
            "timed": True,
            "latency_us": verdict.latency_us,
            "reference_latency_us": verdict.reference_latency_us,
            "speedup_vs_reference": verdict.speedup_vs_reference,
            "speedup_interval": [verdict.speedup_interval.low, verdict.speedup_interval.high],
        }
    return told


def _untimed_lines(verdict: Measured, device: str) -> list[str]:
    """Say that it is correct, why it was not timed, and what else the evaluator notes."""
    why_not = next((note for note in verdict.notes if note.startswith("not timed")), "not timed")
    return [
        f"verdict    measured: correct, {why_not}",
        f"checks     {len(verdict.checks)} calls; {device}",
        *(f"note       {note}" for note in verdict.notes if note != why_not),
    ]


def _lines(verdict: Verdict, device: str) -> list[str]:
    if isinstance(verdict, Scored):
        metrics = [f"           {name} = {value}" for name, value in verdict.metrics.items()]
        return ["verdict    scored", f"score      {score_text(verdict.score)}", *metrics, *verdict.notes]
    if not isinstance(verdict, Measured):
        log = getattr(verdict, "log", "").rstrip()
        told = [log] if log and log != verdict.reason else []
        return [f"verdict    {fate_of(verdict)}", f"reason     {verdict.reason}", *told]
    interval = verdict.speedup_interval
    if not verdict.timed or interval is None:
        return _untimed_lines(verdict, device)
    return [
        f"verdict    measured: correct in {len(verdict.checks)} checked calls",
        f"speedup    {verdict.speedup_vs_reference:.2f}x the reference [{interval.low:.2f}, {interval.high:.2f}] "
        f"(95 % interval, {verdict.pairs} pairs)",
        f"latency    {verdict.latency_us:.1f} us, the reference {verdict.reference_latency_us:.1f} us; {device}",
    ]
