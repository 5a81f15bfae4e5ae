"""`ksearch eval`: builds, checks and times source files, or a run's best, without a search."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import anyio
import msgspec
from cyclopts import Parameter, validators

from evaluators.languages.triton.ahead import AheadReport, check_architecture, compile_ahead
from evaluators.tasks import find_competition, reference_candidate
from evaluators.tasks.defaults import Competition
from ksearch_async.cli import exits
from ksearch_async.cli.evaluation_flags import NO_EVALUATION_FLAGS, EvaluationFlags
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import note, put, put_json, put_lines
from ksearch_async.cli.verdicts import as_object, hint_on, lines_of, repeats_lines, repeats_object
from ksearch_async.config import KernelLanguage, ProgramSettings, WorkerSettings
from ksearch_async.evaluation import Evaluation, EvaluationSettings, TaskLike, task_of
from ksearch_async.judging import Judge, open_judge
from ksearch_async.logs import configure_logs
from ksearch_async.provenance import Provenance, from_run
from ksearch_async.refusals import refusal
from ksearch_async.runs import runs_dir_or_default
from ksearch_async.sources import read_kernel
from ksearch_async.workers import is_task, open_workers
from messages.commands import Purpose
from messages.tasks import Candidate, TaskSpec

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def eval_command(
    task: str,
    /,
    *sources: Path,
    flags: EvaluationFlags = NO_EVALUATION_FLAGS,
    repeat: Count = 1,
    purpose: Purpose | None = None,
    profile: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    role: Literal["candidate", "baseline"] = "candidate",
    compile_for: str | None = None,
    score_with: str | None = None,
    eval_timeout: float = ProgramSettings().timeout_s,
    eval_memory: float = ProgramSettings().memory_gib,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Build, check and time source files against a task, or a run's best kernel once more.

    Args:
        task: A bundled problem's name, a problem file in KernelBench's format, a folder with a task.toml, or SOURCE:…;
            with --score-with a program. Alone: a run's id, its folder, or `latest`.
        sources: Source files, or a run's `best` folder (or one of its `candidates/`); for FlashInfer-Bench's tasks
            a solution's JSON too. One judge serves all.
        flags: How they are evaluated.
        repeat: Evaluate each so often, in fresh processes, and say how far the results lie apart.
        purpose: `screen` measures as candidates of a search are, `confirm` as a new best is. [default: screen; of a
            run's best confirm]
        profile: On a GPU: also say which kernels run in a call of what was measured, for how long, and how well they
            fill the GPU.
        role: `baseline`: a program to compare with, which may call any library, also where the task cannot tell it from
            an answer that computes nothing. Without a source it is the task's own reference.
        compile_for: Evaluate nothing: compile the kernels of a Triton program for this architecture (sm_90, ...). Needs
            no GPU, and says nothing about numbers or speed.
        score_with: The task is a Python program, and the `evaluate(program_path)` of this file scores it.
        eval_timeout: Seconds that scoring a program may take.
        eval_memory: Gibibytes that a program may take.
        runs_dir: Where runs are looked for. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object per source, each on a line as soon as it is known.
    """
    configure_logs()
    purpose = purpose or ("screen" if sources else "confirm")
    settings = flags.settings()
    settings |= EvaluationSettings(purpose=purpose, eval_timeout=eval_timeout, eval_memory=eval_memory)
    if profile:
        settings["profile"] = True
    if score_with is not None:
        settings["score_with"] = score_with
    if role == "baseline":
        settings["role"] = role
    given, asked = _meant(task, sources, settings, runs_dir)
    if compile_for is not None:
        return _compile(task_of(given, settings), asked, flags.language, compile_for, as_json=as_json)
    is_named = score_with is None and (role == "baseline" or bool(sources))
    competition = find_competition(task) if is_named else None
    shown = Shown(as_json=as_json, competition=competition)
    found = anyio.run(_evaluated, given, asked, settings, repeat, shown)
    return exits.FOUND if all(one.good for repeats in found for one in repeats) else exits.NOT_FOUND


def _meant(
    task: str, sources: Sequence[Path], settings: EvaluationSettings, runs_dir: Path | None
) -> tuple[TaskLike, Sequence[Path | Candidate]]:
    """Return the task, and what is evaluated against it; of a run its best.

    Raises:
        ConfigError: there is no such task or run, or nothing is given to evaluate.
    """
    if "role" in settings:
        spec = task_of(task, settings)
        return spec, sources or [reference_candidate(spec)]
    if sources:
        return task, sources
    best = _best_of(task, runs_dir_or_default(runs_dir))
    return best.task, [best.candidate]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How evaluations are printed."""

    as_json: bool
    competition: Competition | None
    """By which submissions are ranked; null: the task is of none."""


def _best_of(run: str, runs_dir: Path) -> Provenance:
    """Return a run's best kernel.

    Raises:
        ConfigError: there is no such run, it has none, or this is a task whose source was forgotten.
    """
    if is_task(run):
        raise refusal(f"no source file is given for {run!r}", "ksearch eval TASK SOURCE, or ksearch eval RUN")
    return from_run(run, runs_dir)


async def _evaluated(
    task: TaskLike, sources: Sequence[Path | Candidate], settings: EvaluationSettings, repeat: int, shown: Shown
) -> list[list[Evaluation]]:
    """Evaluate each source as often as asked, print each as it is done, and return the evaluations of each.

    Raises:
        ConfigError: the input cannot be used.
        messages.errors.EvaluatorError: the evaluator itself failed.
    """
    language = settings.get("language")
    spec = task_of(task, settings)
    if spec.source != "program":  # what cannot be read is refused before anything is evaluated
        for source in sources:
            read_kernel(source, language, spec)
    found: list[list[Evaluation]] = [[] for _ in sources]
    for number in range(repeat):
        async with open_judge(spec, **settings) as judge:
            for source, repeats in zip(sources, found, strict=True):
                which = f"{_name_of(source)}{f', {number + 1} of {repeat}' if repeat > 1 else ''}"
                repeats.append(await _one(judge, source, which))
                if number < repeat - 1:
                    continue
                if shown.as_json:
                    put_json(_as_object(source, repeats, shown.competition))
                else:
                    _print(source, repeats, shown.competition, several=len(sources) > 1)
    return found


async def _one(judge: Judge, source: Path | Candidate, which: str) -> Evaluation:
    return await judge.evaluate(source, on_stage=lambda stage: note(f"{which}: {stage} ..."))


def _print(
    source: Path | Candidate, repeats: Sequence[Evaluation], competition: Competition | None, *, several: bool
) -> None:
    told = [f"source     {_name_of(source)}"] if several else []
    told += lines_of(repeats[-1])
    if competition is not None:
        told += competition.lines(repeats[-1].verdict)
    if len(repeats) > 1:
        told += repeats_lines(repeats)
    put_lines(told)
    if hint := hint_on(repeats[-1].verdict):
        note(f"hint: {hint}")
    if several:
        put()


def _as_object(
    source: Path | Candidate, repeats: Sequence[Evaluation], competition: Competition | None
) -> dict[str, object]:
    told = as_object(repeats[0]) if len(repeats) == 1 else repeats_object(repeats)
    if competition is not None:
        told["competition"] = competition.score(repeats[-1].verdict)
    return told | {"source": _name_of(source)}


def _name_of(source: Path | Candidate) -> str:
    return f"candidate {source.candidate_id[:8]}" if isinstance(source, Candidate) else str(source)


def _compile(
    task: TaskSpec,
    sources: Sequence[Path | Candidate],
    language: KernelLanguage | None,
    arch: str,
    *,
    as_json: bool,
) -> int:
    """Compile instead of evaluating, and say how that went."""
    if len(sources) != 1:
        raise refusal("--compile-for takes one source")
    candidate = read_kernel(sources[0], language, task)
    if candidate.language != "triton":
        raise refusal(f"--compile-for is for Triton programs, and this one is written in {candidate.language}")
    report = anyio.run(_compiled, task, candidate, arch)
    if as_json:
        put_json({"compiles": report.compiles, "reason": report.reason, **msgspec.to_builtins(report)})
    else:
        put_lines(_compilation_lines(report))
    return exits.FOUND if report.compiles else exits.NOT_FOUND


async def _compiled(task: TaskSpec, candidate: Candidate, arch: str) -> AheadReport:
    """Return what came of compiling.

    Raises:
        ConfigError: the task cannot be used, or there is no such architecture.
        messages.errors.EvaluatorError: judge or compiler failed.
    """
    check_architecture(arch)
    with tempfile.TemporaryDirectory(prefix="ksearch-eval-") as folder:
        async with open_workers(task, candidate.language, Path(folder), WorkerSettings(evaluators=1)) as workers:
            description = await workers.describe()
        return await compile_ahead(
            candidate, description.tensors, arch=arch, others=description.other_tensors, calls=description.calls
        )


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
