"""Judges candidates on this host, in processes of their own.

- `LocalEvaluator(artifacts: Path, *, slots: int = 2, lease: Lease | None = None, limits: Limits = Limits())`
- `await evaluator.evaluate(job: EvaluateCandidate) -> EvaluationReport`, raises EvaluatorError
- `await evaluator.describe_task(task: TaskSpec, language: Language) -> TaskDescription`, raises ConfigError
- `await evaluator.aclose()`

A judge process serves one task and does one kind of work: at most `slots` of them check, at low priority, and one
times, under the device's lease. They are started when needed and kept. Each runs under a guard, so nothing of it
survives this process, whatever ends it. A judge that dies is an `EvaluatorError` for its job and is replaced for the
next. Nothing of torch is imported here. All of it must run on one event loop and its thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from evaluators.base import EvaluationReport
from evaluators.builder import artifact_folder, load_meta
from evaluators.judge.protocol import (
    INTERPRETED_LIMITS,
    Artifact,
    Judged,
    Limits,
    Open,
    Passed,
    Work,
)
from evaluators.judge_process import JudgeProcess, start_judge
from evaluators.languages import support_of
from evaluators.lease import HostLease, Lease
from evaluators.target import check_target, probe_target
from messages.base import Language
from messages.commands import EvaluateCandidate
from messages.errors import EvaluatorError, KsearchError
from messages.tasks import Target, TaskDescription, TaskSpec
from messages.verdicts import Measured, Verdict


class LocalEvaluator:
    """An `Evaluator` for the devices of this host."""

    def __init__(
        self, artifacts: Path, *, slots: int = 2, lease: Lease | None = None, limits: Limits | None = None
    ) -> None:
        """Make an evaluator; it starts nothing yet.

        Args:
            artifacts: the store that builders fill.
            slots: candidates checked at once. One is timed at a time.
            lease: what all evaluators that time on the same device share; None: the host's.
            limits: what candidates may use; None: as much as is usual for their language.
        """
        self._artifacts = artifacts.absolute()
        self._lease = HostLease() if lease is None else lease
        self._pools: dict[Work, _Pool] = {"check": _Pool("check", slots, limits), "time": _Pool("time", 1, limits)}
        self._targets: dict[Language, Target] = {}

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate.

        Raises:
            EvaluatorError: judge, artifact or device is at fault.
            ConfigError: the problem cannot be used.
        """
        begun = anyio.current_time()
        own = await self._own_target(job.candidate.language)
        artifact = await self._find_artifact(job, own)
        await self._warm_up(job.task, job.candidate.language)
        verdict, lease_s = await self._judge(job, artifact)
        return EvaluationReport(
            verdict=verdict, device=own.device, wall_s=anyio.current_time() - begun, lease_s=lease_s
        )

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """Run the reference once and say what there is to know about the task.

        Raises:
            ConfigError: the problem cannot be used; the text says why.
            EvaluatorError: the judge is at fault.
        """
        await self._warm_up(task, language)
        async with self._pools["check"].lend(task, language) as judge:
            return await judge.describe()

    async def _warm_up(self, task: TaskSpec, language: Language) -> None:
        """Start all judges at once if there are none yet: importing torch takes them seconds.

        Raises:
            ConfigError: the problem cannot be used.
            EvaluatorError: a judge failed.
        """
        failures: list[KsearchError] = []

        async def start(pool: _Pool) -> None:
            try:
                await pool.start(task, language)
            except KsearchError as error:
                failures.append(error)

        async with anyio.create_task_group() as starts:
            for pool in self._pools_for(language):
                for _ in range(0 if pool.judges else pool.size):
                    starts.start_soon(start, pool)
        if failures:
            raise failures[0]

    def _pools_for(self, language: Language) -> list[_Pool]:
        """Return those that candidates of a language need: some are not timed here."""
        return [pool for work, pool in self._pools.items() if work == "check" or not support_of(language).not_timed]

    async def _judge(self, job: EvaluateCandidate, artifact: Artifact) -> tuple[Verdict, float]:
        """Check, then time. Returns the verdict, and for how many seconds the timing lease was held."""
        language = job.candidate.language
        async with self._pools["check"].lend(job.task, language) as judge:
            answer = await judge.check(artifact)
        if isinstance(answer, Judged):
            return answer.verdict, 0.0
        if why_not := support_of(language).not_timed:
            return _untimed(answer, why_not), 0.0
        async with self._pools["time"].lend(job.task, language) as judge, self._lease:
            begun = anyio.current_time()
            verdict = await judge.time(artifact, job.purpose)
            lease_s = anyio.current_time() - begun
        if isinstance(verdict, Measured):
            verdict = msgspec.structs.replace(
                verdict,
                checks=answer.checks,
                reference_dtype=answer.reference_dtype,
                notes=(*verdict.notes, *answer.notes),
            )
        return verdict, lease_s

    async def _find_artifact(self, job: EvaluateCandidate, own: Target) -> Artifact:
        """Find what was built for the job.

        Raises:
            EvaluatorError: it is not there, or for another machine.
        """
        check_target(own, job.target)
        meta = await anyio.to_thread.run_sync(load_meta, self._artifacts, job.artifact_id)
        if meta.candidate_id != job.candidate.candidate_id:
            raise EvaluatorError(f"artifact {job.artifact_id!r} is of another candidate", permanent=True)
        check_target(own, meta.target)
        product = artifact_folder(self._artifacts, job.artifact_id) / meta.product
        return Artifact(product=str(product), entry_point=meta.entry_point)

    async def aclose(self) -> None:
        """End all processes, also those at work."""
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as group:
                for pool in self._pools.values():
                    for judge in pool.empty():
                        group.start_soon(judge.end)

    async def _own_target(self, language: Language) -> Target:
        if language not in self._targets:
            self._targets[language] = await anyio.to_thread.run_sync(probe_target, language)
        return self._targets[language]


def _untimed(passed: Passed, why_not: str) -> Measured:
    notes = (f"not timed: {why_not}", *passed.notes)
    return Measured(timed=False, checks=passed.checks, reference_dtype=passed.reference_dtype, notes=notes)


class _Pool:
    """Judges for one kind of work: at most `size`, started when needed and kept."""

    def __init__(self, work: Work, size: int, limits: Limits | None) -> None:
        self._work: Work = work
        self._limits = limits
        self.size = size
        self._turns = anyio.Semaphore(size)
        self._idle: list[JudgeProcess] = []
        self._busy: set[JudgeProcess] = set()
        self._starting = 0

    @property
    def judges(self) -> int:
        """Return how many there are, those that are starting counted."""
        return self._starting + len(self._idle) + len(self._busy)

    async def start(self, task: TaskSpec, language: Language) -> None:
        """Have a judge ready.

        Raises:
            ConfigError: the problem cannot be used.
            EvaluatorError: it failed.
        """
        async with self.lend(task, language):
            pass

    @asynccontextmanager
    async def lend(self, task: TaskSpec, language: Language) -> AsyncIterator[JudgeProcess]:
        """Lend a judge for the task. One that was interrupted or failed is ended, not kept.

        Raises:
            ConfigError: the problem cannot be used.
            EvaluatorError: no judge could be started.
        """
        async with self._turns:
            judge = await self._find(task, language)
            self._busy.add(judge)
            sound = False
            try:
                yield judge
                sound = True
            finally:
                self._busy.discard(judge)
                if sound:
                    self._idle.append(judge)
                else:
                    await judge.end()

    def empty(self) -> list[JudgeProcess]:
        """Give up the idle judges. Returns all, for the caller to end."""
        judges = [*self._idle, *self._busy]
        self._idle.clear()
        return judges

    async def _find(self, task: TaskSpec, language: Language) -> JudgeProcess:
        key = (task.task_id, language)
        for judge in self._idle:
            if judge.key == key:
                self._idle.remove(judge)
                return judge
        self._starting += 1
        try:
            if self._idle and self.judges > self.size:
                # One of another task makes way.
                await self._idle.pop(0).end()
            limits = self._limits or (INTERPRETED_LIMITS if support_of(language).not_timed else Limits())
            return await start_judge(Open(task=task, language=language, limits=limits, work=self._work))
        finally:
            self._starting -= 1
