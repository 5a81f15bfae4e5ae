"""The evaluator as calls: builds, checks and times candidates for one task or for many.

`ksearch eval` makes these calls and prints their results. A bad source gives an `Evaluation` like any other; only bad
input and a broken evaluator raise. Nothing here writes to stdout or stderr, or installs signal handlers.

Many tasks give a row each: the candidate's verdict, its speed, and findings on the task. Nothing here knows a
benchmark; its metrics are computed from the rows (`evaluators/tasks/*/scoring.py`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias, Unpack

import anyio
import anyio.to_thread
import msgspec

from evaluators.hardware.target import CPU
from evaluators.process.device_lease import waits
from evaluators.tasks import reference_candidate
from ksearch_async.errors import refusal, refuse_event_loop, single_error
from ksearch_async.evaluation.candidates import SourceLike, read_kernel, read_program
from ksearch_async.evaluation.settings import Evaluation, EvaluationSettings, TaskLike, check_settings, task_of
from ksearch_async.evaluation.tasks import check_fitness, marks_of
from ksearch_async.fleet.workers import Workers, check_language, check_threads_here, find_target, open_workers
from ksearch_async.settings.run_config import WorkerSettings
from messages.base import BoundaryError, ConfigError, Language
from messages.commands import BuildCandidate, EvaluateCandidate, Purpose
from messages.events import Built
from messages.tasks import Candidate, Fitness, Intake, Target, TaskDescription, TaskSpec
from messages.verdicts import Measured, Verdict, fate_of, reason_of

_RUN_ID = "eval"
_LOOK_S = 1.0
_AT_ONCE = 2
"""Sources built and checked at once by `evaluate_many`; one is timed at a time."""

OnStage: TypeAlias = Callable[[str], object]
"""Called at each step: `building`, `checking and timing`, `waiting for` and the holder of the lease."""


@asynccontextmanager
async def saying_waits(tell: OnStage) -> AsyncIterator[None]:
    """Report the holder of the timing lease when the wait takes some seconds, and when the holder changes."""

    async def say() -> None:
        said: tuple[str, ...] = ()
        while True:
            await anyio.sleep(_LOOK_S)
            now = waits()
            for wait in now if now != said else ():
                tell(f"waiting for {wait}")
            said = now

    async with anyio.create_task_group() as group:
        group.start_soon(say)
        yield
        group.cancel_scope.cancel()


class Judge:
    """Evaluates sources for one task in processes that stay alive. Made by `open_judge`."""

    def __init__(self, task: TaskSpec, workers: Workers, settings: EvaluationSettings) -> None:
        self._task = task
        self._workers = workers
        self._settings = settings
        self._targets: dict[Language, Target] = {}
        self._descriptions: dict[Language, TaskDescription] = {}

    @property
    def task(self) -> TaskSpec:
        """The task."""
        return self._task

    async def evaluate(
        self, source: SourceLike, *, language: Language | None = None, on_stage: OnStage | None = None
    ) -> Evaluation:
        """Build, check and time one source. May be called many times at once; one is timed at a time.

        Args:
            source: path of a source file or of a run's `best` folder, or a program's text (of more than one line).
            language: its language, if it differs from the judge's.
            on_stage: called with each stage that begins.

        Raises:
            ConfigError: it cannot be read, or its language is unknown or cannot be evaluated here.
            EvaluatorError: the evaluator itself failed.
        """
        candidate = await anyio.to_thread.run_sync(self._candidate, source, language)
        if self._settings.get("role") != "baseline":
            check_language(self._task, candidate.language)
        target = await self._target(candidate.language)
        tell = on_stage or (lambda _stage: None)
        tell("building")
        build = BuildCandidate(job_id="build", run_id=_RUN_ID, candidate=candidate, target=target)
        if self._builds_for_tensors(candidate.language, target):
            build = build.for_task(await self._described(candidate.language))
        built = await self._workers.builder.build(build)
        evaluation = Evaluation(
            task=self._task.name,
            task_id=self._task.task_id,
            language=candidate.language,
            candidate_id=candidate.candidate_id,
            verdict=built.outcome if not isinstance(built.outcome, Built) else Measured(timed=False),
            device=target.device,
            target=target,
            purpose=self._purpose,
            build_s=built.wall_s,
        )
        if not isinstance(built.outcome, Built):
            return evaluation
        tell("checking and timing")
        description = await self._described(candidate.language)
        is_baseline = self._settings.get("role") == "baseline"
        check_fitness(description, allow_trivial=is_baseline or self._settings.get("allow_trivial", False))
        evaluation = msgspec.structs.replace(evaluation, marks=marks_of(description))
        return await self._judged(evaluation, candidate, built.outcome.artifact_id, tell)

    async def describe(self) -> TaskDescription:
        """Run the reference once, and describe a kernel's calls in the judge's language.

        Raises:
            ConfigError: the task cannot be used.
            EvaluatorError: the evaluator itself failed.
        """
        return await self._workers.describe()

    def read(self, sources: Sequence[SourceLike]) -> list[Candidate]:
        """Read sources without evaluating them. Blocks while the files are read.

        Raises:
            ConfigError: one cannot be read, or its language is unknown.
        """
        return [self._candidate(source, None) for source in sources]

    async def _judged(
        self, evaluation: Evaluation, candidate: Candidate, artifact_id: str, tell: OnStage
    ) -> Evaluation:
        job = EvaluateCandidate(
            job_id="evaluate",
            run_id=_RUN_ID,
            task=self._task,
            candidate=candidate,
            artifact_id=artifact_id,
            target=evaluation.target,
            purpose=self._purpose,
            profile=self._settings.get("profile", False),
            keep_above=0.0,  # the figure is asked for, however slow the candidate is
        )
        with single_error():
            async with saying_waits(tell):
                report = await self._workers.evaluator.evaluate(job)
        return msgspec.structs.replace(
            evaluation,
            verdict=report.verdict,
            device=report.device,
            isolation=report.isolation,
            judge_s=report.wall_s,
            lease_s=report.lease_s,
        )

    @property
    def _purpose(self) -> Purpose:
        return self._settings.get("purpose", "screen")

    def _candidate(self, source: SourceLike, language: Language | None) -> Candidate:
        if isinstance(source, Candidate):
            return source
        if self._task.source == "program":
            return read_program(source)
        return read_kernel(source, language or self._settings.get("language"), self._task)

    def _builds_for_tensors(self, language: Language, target: Target) -> bool:
        from evaluators.languages import support_of  # noqa: PLC0415 - costs the start-up of every command

        return self._task.source != "program" and support_of(language, target.platform).builds_for_tensors

    async def _described(self, language: Language) -> TaskDescription:
        """Return the task's description for candidates of a language, from a cache after the first time."""
        if language not in self._descriptions:
            self._descriptions[language] = await self._workers.describe(language)
        return self._descriptions[language]

    async def _target(self, language: Language) -> Target:
        if language not in self._targets:
            self._targets[language] = await find_target(self._task, language, self._settings.get("device", "cpu"))
        return self._targets[language]


@asynccontextmanager
async def open_judge(
    task: TaskLike, *, at_once: int = 1, **settings: Unpack[EvaluationSettings]
) -> AsyncIterator[Judge]:
    """Lend a judge for a task: its processes are started by the first evaluation, kept, and ended with the block.

    Args:
        task: a bundled problem's name, the path of a problem file, or a problem's text (of more than one line).
        at_once: sources built and checked at once; one is timed at a time.
        **settings: see `EvaluationSettings`.

    Raises:
        ConfigError: there is no such task or setting, or it cannot be used.
    """
    check_settings(settings)
    spec = await anyio.to_thread.run_sync(task_of, task, settings)
    check_threads_here(spec)
    if settings.get("profile", False) and settings.get("device", CPU) == CPU:
        raise refusal("--profile is for GPUs", "name one: --device cuda:0")
    language = settings.get("language") or "cpp"
    where = WorkerSettings(
        evaluators=at_once,
        device=settings.get("device", "cpu"),
        baseline=settings.get("baseline", ""),
        isolation=settings.get("isolation", "auto"),
    )
    with tempfile.TemporaryDirectory(prefix="ksearch-eval-") as folder, single_error():
        async with open_workers(spec, language, Path(folder), where) as workers:
            yield Judge(spec, workers, settings)


async def evaluate(
    task: TaskLike,
    source: SourceLike,
    *,
    on_stage: OnStage | None = None,
    **settings: Unpack[EvaluationSettings],
) -> Evaluation:
    """Build, check and time one source for a task, in processes of its own that are ended afterwards.

    Args:
        task: a bundled problem's name, the path of a problem file, or a problem's text (of more than one line).
        source: path of a source file or of a run's `best` folder, or a program's text (of more than one line).
        on_stage: called with each stage that begins.
        **settings: see `EvaluationSettings`.

    Raises:
        ConfigError: the input cannot be used; its notes say what to change.
        EvaluatorError: the evaluator itself failed; that says nothing about the source.
    """
    async with open_judge(task, **settings) as judge:
        return await judge.evaluate(source, on_stage=on_stage)


async def evaluate_many(
    task: TaskLike,
    sources: Sequence[SourceLike],
    *,
    at_once: int = _AT_ONCE,
    on_result: Callable[[int, Evaluation], object] | None = None,
    **settings: Unpack[EvaluationSettings],
) -> list[Evaluation]:
    """Evaluate several sources with one warm judge: the first pays for its start.

    Args:
        task: as in `evaluate`.
        sources: as `source` in `evaluate`.
        at_once: sources built and checked at once; one is timed at a time.
        on_result: called with a source's place and its evaluation, as each is done.
        **settings: see `EvaluationSettings`.

    Returns:
        One evaluation per source, in their order.

    Raises:
        ConfigError: as `evaluate`; a source that cannot be read is refused before any is evaluated.
        EvaluatorError: as `evaluate`.
    """
    found: dict[int, Evaluation] = {}
    limit = anyio.CapacityLimiter(at_once)
    async with open_judge(task, at_once=at_once, **settings) as judge:
        candidates = await anyio.to_thread.run_sync(judge.read, sources)

        async def one(index: int, candidate: Candidate) -> None:
            async with limit:
                found[index] = await judge.evaluate(candidate)
            if on_result is not None:
                on_result(index, found[index])

        async with anyio.create_task_group() as group:
            for index, candidate in enumerate(candidates):
                group.start_soon(one, index, candidate)
    return [found[index] for index in range(len(candidates))]


def evaluate_sync(task: TaskLike, source: SourceLike, **settings: Unpack[EvaluationSettings]) -> Evaluation:
    """Do what `evaluate` does, from synchronous code.

    Raises:
        ConfigError: as `evaluate`; or an event loop runs in this thread.
        EvaluatorError: as `evaluate`.
    """
    refuse_event_loop("ksearch_async.evaluate_sync()", "await ksearch_async.evaluate(…)")
    return anyio.run(partial(evaluate, task, source, **settings))


def evaluate_many_sync(
    task: TaskLike, sources: Sequence[SourceLike], **settings: Unpack[EvaluationSettings]
) -> list[Evaluation]:
    """Do what `evaluate_many` does, from synchronous code.

    Raises:
        ConfigError: as `evaluate_many`; or an event loop runs in this thread.
        EvaluatorError: as `evaluate_many`.
    """
    refuse_event_loop("ksearch_async.evaluate_many_sync()", "await ksearch_async.evaluate_many(…)")
    return anyio.run(partial(evaluate_many, task, sources, **settings))


UNUSABLE, FAILED, ABSENT = "unusable", "evaluator_failed", "no_candidate"
"""Outcomes of a task other than a verdict: its problem cannot be judged here, the evaluator (or a model) failed, or it
has no candidate."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its candidate."""

    task: TaskSpec
    source: Path | Candidate | None = None
    """Null: there is no candidate; the task is counted all the same."""
    is_reference: bool = False
    """True if the task's own reference is evaluated as the candidate."""
    why_none: str = "there is no candidate for it"
    """Text for a task without a candidate."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one task."""

    task: str
    task_id: str
    fate: str
    """Tag of the verdict, or `unusable`, `evaluator_failed`, `no_candidate`."""
    reason: str = ""
    verdict: Verdict | None = None
    fitness: Fitness | None = None
    """True if the task can tell a kernel from a trick; None: not checked."""
    marks: tuple[str, ...] = ()
    """Reasons why it is not simply fit."""
    device: str = ""
    elapsed_s: float
    """Wall-clock seconds, including the start of all processes."""

    @property
    def speedup(self) -> float | None:
        """Speedup against the reference; null unless it was measured and timed."""
        return self.verdict.speedup_vs_reference if isinstance(self.verdict, Measured) else None

    @property
    def pairs(self) -> int:
        """Timed pairs of calls of candidate and reference."""
        return self.verdict.pairs if isinstance(self.verdict, Measured) else 0

    @property
    def checked_calls(self) -> int:
        """Calls on fresh inputs with outputs compared with the reference's, timed calls included."""
        return self.pairs + len(self.verdict.checks) if isinstance(self.verdict, Measured) else 0


OnRow: TypeAlias = Callable[[int, Row], object]
Find: TypeAlias = Callable[[Case], Awaitable[Case]]
"""Finds the candidate of a case, by a search."""


async def bench(
    cases: Sequence[Case],
    settings: EvaluationSettings,
    *,
    find: Find | None = None,
    at_once: int = 1,
    on_row: OnRow | None = None,
) -> list[Row]:
    """Evaluate each case in processes of its own, and return a row for each, in their order.

    Args:
        cases: tasks with their candidates.
        settings: settings of the evaluation.
        find: called first for each case, to find its candidate; null: not called.
        at_once: cases in work at once; on one device one is timed at a time.
        on_row: called with a case's place and its row, as each is done.
    """
    rows: dict[int, Row] = {}
    limit = anyio.CapacityLimiter(at_once)

    async def one(place: int, case: Case) -> None:
        async with limit:
            rows[place] = await evaluate_case(case, settings, find)
        if on_row is not None:
            on_row(place, rows[place])

    async with anyio.create_task_group() as group:
        for place, case in enumerate(cases):
            group.start_soon(one, place, case)
    return [rows[place] for place in range(len(cases))]


async def evaluate_case(case: Case, settings: EvaluationSettings, find: Find | None = None) -> Row:
    """Evaluate one case. The row reports errors of its task or of the evaluator."""
    begun = time.perf_counter()
    row = Row(task=case.task.name, task_id=case.task.task_id, fate=ABSENT, elapsed_s=0.0)
    try:
        found = await find(case) if find is not None else case
        row = msgspec.structs.replace(row, reason=found.why_none)
        source = reference_candidate(found.task) if found.is_reference else found.source
        if source is not None:
            own = _own(settings, found.task, source, is_reference=found.is_reference)
            async with open_judge(found.task, **own) as judge:
                row = await _judged(row, judge, source)
    except ConfigError as error:
        row = msgspec.structs.replace(row, fate=UNUSABLE, reason=str(error))
    except BoundaryError as error:
        row = msgspec.structs.replace(row, fate=FAILED, reason=str(error))
    return msgspec.structs.replace(row, elapsed_s=time.perf_counter() - begun)


def _own(
    settings: EvaluationSettings, task: TaskSpec, source: Path | Candidate, *, is_reference: bool
) -> EvaluationSettings:
    language = read_kernel(source, None if isinstance(source, Candidate) else settings.get("language"), task).language
    own: EvaluationSettings = {**settings, "language": language}
    if is_reference:
        own["role"] = "baseline"
    return own


async def _judged(row: Row, judge: Judge, source: Path | Candidate) -> Row:
    evaluation = await judge.evaluate(source)
    intake: Intake | None = (await judge.describe()).intake
    return msgspec.structs.replace(
        row,
        fate=fate_of(evaluation.verdict),
        reason=reason_of(evaluation.verdict),
        verdict=evaluation.verdict,
        device=evaluation.device,
        fitness=intake.fitness if intake else None,
        marks=intake.findings if intake else (),
    )


def row_object(row: Row) -> dict[str, object]:
    """Return a row as `--json` prints it."""
    told: dict[str, object] = {"task": row.task, "task_id": row.task_id, "fate": row.fate, "reason": row.reason}
    verdict = row.verdict
    if isinstance(verdict, Measured) and verdict.speedup_interval is not None:
        told |= {
            "speedup_vs_reference": verdict.speedup_vs_reference,
            "speedup_interval": [verdict.speedup_interval.low, verdict.speedup_interval.high],
            "latency_us": verdict.latency_us,
            "reference_latency_us": verdict.reference_latency_us,
        }
        if verdict.baseline:
            told |= {"baseline": verdict.baseline, "speedup_vs_baseline": verdict.speedup_vs_baseline}
    told |= {"pairs": row.pairs, "checked_calls": row.checked_calls, "device": row.device}
    return told | {"fitness": row.fitness, "findings": row.marks, "seconds": round(row.elapsed_s, 1)}
