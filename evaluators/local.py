"""Evaluates candidates on this host, each in processes of its own, on one device or several equal ones.

A judge process serves one task and does one kind of work: at most `slots` of them check, at low priority, and one
times, under the device's lease. They are started when needed and kept. Each runs under a guard, so nothing of it
survives this process. A judge that dies is an `EvaluatorError` for its job and is replaced for the next. Torch is not
imported here. Everything must run on one event loop and its thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from evaluators.base import EvaluationReport
from evaluators.build.builder import artifact_folder, load_meta
from evaluators.build.policy.gate import Examined, examine
from evaluators.hardware.target import CPU, check_target, physical_gpu, platform_of, probe_target
from evaluators.hardware.vendors.nvidia.probe import ails as gpu_ails
from evaluators.judge.proof import Ails, Health, SickDeviceError
from evaluators.judge.protocol import (
    GPU_LIMITS,
    INTERPRETED_LIMITS,
    Artifact,
    Baseline,
    Judged,
    Limits,
    Open,
    Passed,
    Work,
)
from evaluators.languages.interpreting import is_interpreted, why_candidate_untimed, why_untimed
from evaluators.process.device_lease import HostLease, Lease
from evaluators.process.guarded import WarmProcess
from evaluators.process.judge import JudgeProcess, begin_judge, start_judge, warm_judges
from evaluators.process.sandbox.probe import require_layers
from messages.base import EvaluatorError, Isolation, Language
from messages.commands import EvaluateCandidate
from messages.tasks import Target, TaskDescription, TaskSpec
from messages.verdicts import Measured, Verdict


class SeveralEvaluators:
    """Several evaluators as one `Evaluator`. A sick device is left out while another one works."""

    def __init__(self, evaluators: Sequence[LocalEvaluator]) -> None:
        self._all = tuple(evaluators)
        self._idle = list(evaluators)
        self._changed = anyio.Condition()

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate on a device that is free."""
        while True:
            evaluator = await self._take()
            try:
                return await evaluator.evaluate(job)
            except SickDeviceError:
                if all(other.is_resting for other in self._all):
                    raise
            finally:
                await self._give_back(evaluator)

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """See `LocalEvaluator.describe_task`."""
        fit = next((evaluator for evaluator in self._all if not evaluator.is_resting), self._all[0])
        return await fit.describe_task(task, language)

    async def aclose(self) -> None:
        """End all processes."""
        async with anyio.create_task_group() as group:
            for evaluator in self._all:
                group.start_soon(evaluator.aclose)

    async def _take(self) -> LocalEvaluator:
        """Return a free evaluator that works; if none works, one that reports that."""
        async with self._changed:
            while True:
                fit = [evaluator for evaluator in self._idle if not evaluator.is_resting]
                if not fit and all(evaluator.is_resting for evaluator in self._all):
                    fit = self._idle
                if fit:
                    self._idle.remove(chosen := fit[0])
                    return chosen
                await self._changed.wait()

    async def _give_back(self, evaluator: LocalEvaluator) -> None:
        with anyio.CancelScope(shield=True):
            async with self._changed:
                self._idle.append(evaluator)
                self._changed.notify_all()


class LocalEvaluator:
    """An `Evaluator` for the devices of this host."""

    def __init__(
        self,
        artifacts: Path,
        *,
        device: str = CPU,
        slots: int = 2,
        lease: Lease | None = None,
        limits: Limits | None = None,
        baseline: Baseline = "",
        isolation: Isolation = "auto",
        ails: Ails | None = None,
    ) -> None:
        """Make an evaluator; it starts nothing yet.

        Args:
            artifacts: the store that builders fill.
            device: `cpu`, or `cuda:0`, `cuda:1`, ….
            slots: candidates checked at once. One is timed at a time. On a GPU there is one for both.
            lease: shared by all evaluators that time on the same device; None: the host's.
            limits: limits of candidates; None: the usual ones of their language.
            baseline: a second program to time beside the reference, on a GPU.
            isolation: `strict`: refuse to run without the layers that keep a candidate from this host.
            ails: diagnoses the device after a judge failed; None: the vendor's probe.
        """
        self._artifacts = artifacts.absolute()
        self._isolation: Isolation = isolation
        self._device = device
        self._platform = platform_of(device)
        self._unit = "" if device == CPU else device
        self._health = Health(device, ails or (gpu_ails if self._platform == "cuda" else None))
        name = device if device == CPU else f"cuda-{physical_gpu(device)}"
        self._lease = HostLease(name) if lease is None else lease
        self._limits, self._baseline = limits, baseline
        self._warm = warm_judges()
        sizes: dict[Work, int] = {"both": 1} if self._platform == "cuda" else {"check": slots, "time": 1}
        self._pools = {
            work: _Pool(size, partial(self._open, work), self._warm, self._lease if work == "both" else None)
            for work, size in sizes.items()
        }
        self._targets: dict[Language, Target] = {}

    def _open(self, work: Work, task: TaskSpec, language: Language) -> Open:
        """Return a judge's first frame."""
        usual = GPU_LIMITS if self._platform == "cuda" else Limits()
        limits = self._limits or (INTERPRETED_LIMITS if why_untimed(task, language, self._platform) else usual)
        limits = msgspec.structs.replace(limits, isolation=self._isolation)
        return Open(
            task=task, language=language, limits=limits, work=work, device=self._device, baseline=self._baseline
        )

    @property
    def is_resting(self) -> bool:
        """True if the device was found sick and must not be tried yet."""
        return self._health.is_resting

    def begin(self, task: TaskSpec) -> None:
        """Begin the imports that a task's judges share, before the first judge is needed."""
        if self._platform == "cpu" and not is_interpreted(task, self._platform):
            self._warm.begin()

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate.

        Raises:
            SickDeviceError: the device does not work for any caller.
            EvaluatorError: judge or artifact failed.
            ConfigError: the problem cannot be used.
        """
        begun = anyio.current_time()
        own = await self._own_target(job.candidate.language)
        artifact = await self._find_artifact(job, own)
        examined = await anyio.to_thread.run_sync(examine, job.candidate, Path(artifact.product), job.task.rules)
        await self._health.require()
        try:
            verdict, lease_s, isolation = await self._judge(job, artifact, examined)
        except EvaluatorError as error:
            raise await self._health.blame(error) from error
        return EvaluationReport(
            verdict=verdict,
            device=own.device,
            unit=self._unit,
            wall_s=anyio.current_time() - begun,
            lease_s=lease_s,
            isolation=isolation,
        )

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """Run the reference once and describe the task.

        Raises:
            ConfigError: the problem cannot be used; the text says why.
            EvaluatorError: the judge failed.
        """
        await self._warm_up(task, language)
        pool = next(iter(self._pools.values()))
        async with pool.lend(task, language) as judge, pool.lease or nullcontext():
            return await judge.describe()

    async def _warm_up(self, task: TaskSpec, language: Language) -> None:
        """Start all judges at once if there are none yet: one loads the problem while another one checks.

        On a GPU there is one, which is started on its first request.
        """
        await anyio.to_thread.run_sync(require_layers, self._isolation)
        if self._platform == "cpu":
            for pool in self._pools_for(task, language):
                await pool.begin(task, language)

    def _pools_for(self, task: TaskSpec, language: Language) -> list[_Pool]:
        is_timed = not why_untimed(task, language, self._platform)
        return [pool for work, pool in self._pools.items() if work != "time" or is_timed]

    async def _judge(
        self, job: EvaluateCandidate, artifact: Artifact, examined: Examined
    ) -> tuple[Verdict, float, tuple[str, ...]]:
        """Run the candidate, unless its text or product breaks a rule.

        Returns:
            The verdict, the seconds for which the timing lease was held, and the layers that isolated the candidate.
        """
        if examined.rejected is not None:
            return examined.rejected, 0.0, ()
        await self._warm_up(job.task, job.candidate.language)
        verdict, lease_s, isolation = await self._check_and_time(job, artifact)
        if isinstance(verdict, Measured):
            verdict = msgspec.structs.replace(verdict, flags=examined.flags)
        return verdict, lease_s, isolation

    async def _check_and_time(
        self, job: EvaluateCandidate, artifact: Artifact
    ) -> tuple[Verdict, float, tuple[str, ...]]:
        """Check, then time; returns as `_judge` does."""
        language = job.candidate.language
        if "both" in self._pools:
            return await self._judge_on_gpu(job, artifact)
        async with self._pools["check"].lend(job.task, language) as judge:
            answer = await judge.check(artifact, job.purpose)
        if isinstance(answer, Judged):
            return answer.verdict, 0.0, answer.isolation
        why_not = why_untimed(job.task, language, "cpu") or why_candidate_untimed(job.candidate, "cpu")
        if why_not:
            untimed = Measured(timed=False, notes=(f"not timed: {why_not}",), printed=answer.printed)
            return _with_checks(untimed, answer), 0.0, answer.isolation
        async with self._pools["time"].lend(job.task, language) as judge, self._held_for(job):
            begun = anyio.current_time()
            verdict = await judge.time(artifact, job.purpose, job.keep_above)
            lease_s = anyio.current_time() - begun
        return _with_checks(verdict, answer), lease_s, answer.isolation

    async def _judge_on_gpu(self, job: EvaluateCandidate, artifact: Artifact) -> tuple[Verdict, float, tuple[str, ...]]:
        """Check and time under the lease, since checks disturb timings on the same GPU."""
        async with self._pools["both"].lend(job.task, job.candidate.language) as judge, self._held_for(job):
            begun = anyio.current_time()
            answer = await judge.check(artifact, job.purpose, job.keep_above)
            if isinstance(answer, Judged):
                return answer.verdict, anyio.current_time() - begun, answer.isolation
            verdict = await judge.time(artifact, job.purpose, job.keep_above)
            if isinstance(verdict, Measured) and (job.profile or job.purpose == "confirm"):
                # A candidate that may become the best is the base of further candidates.
                found = await judge.profile(artifact)
                notes = (f"no profile: {found.error}",) if found.error else ()
                verdict = msgspec.structs.replace(verdict, profile=found.workloads, notes=(*verdict.notes, *notes))
            return _with_checks(verdict, answer), anyio.current_time() - begun, answer.isolation

    def _held_for(self, job: EvaluateCandidate) -> Lease:
        return self._lease.hold(job.run_id) if isinstance(self._lease, HostLease) else self._lease

    async def _find_artifact(self, job: EvaluateCandidate, own: Target) -> Artifact:
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
            await anyio.to_thread.run_sync(self._warm.close)

    async def _own_target(self, language: Language) -> Target:
        if language not in self._targets:
            self._targets[language] = await anyio.to_thread.run_sync(probe_target, language, self._device)
        return self._targets[language]


def _with_checks(verdict: Verdict, passed: Passed) -> Verdict:
    if not isinstance(verdict, Measured):
        return verdict
    return msgspec.structs.replace(
        verdict,
        checks=passed.checks,
        reference_dtype=passed.reference_dtype,
        deterministic=passed.deterministic,
        notes=tuple(dict.fromkeys((*verdict.notes, *passed.notes))),
    )


class _Pool:
    """Judges for one kind of work: at most `size`, started when needed and kept."""

    def __init__(
        self, size: int, opening: Callable[[TaskSpec, Language], Open], warm: WarmProcess, lease: Lease | None
    ) -> None:
        self.lease = lease
        self._opening = opening
        self._warm = warm
        self.size = size
        self._turns = anyio.Semaphore(size)
        self._idle: list[JudgeProcess] = []
        self._busy: set[JudgeProcess] = set()
        self._starting = 0

    @property
    def judges(self) -> int:
        """Return the number of judges, including those that are starting."""
        return self._starting + len(self._idle) + len(self._busy)

    async def begin(self, task: TaskSpec, language: Language) -> None:
        """Start all judges of the pool, if there are none yet. They load their task meanwhile."""
        for _ in range(0 if self.judges else self.size):
            self._starting += 1
            try:
                self._idle.append(await begin_judge(self._opening(task, language), self._warm))
            finally:
                self._starting -= 1

    @asynccontextmanager
    async def lend(self, task: TaskSpec, language: Language) -> AsyncIterator[JudgeProcess]:
        """Lend a judge for the task. One that was interrupted or failed is ended, not kept."""
        async with self._turns:
            judge = await self._find(task, language)
            self._busy.add(judge)
            sound = False
            try:
                await judge.opened()
                yield judge
                sound = True
            finally:
                self._busy.discard(judge)
                if sound and judge.is_sound:
                    self._idle.append(judge)
                else:
                    await judge.end()

    def empty(self) -> list[JudgeProcess]:
        """Give up the idle judges. Returns them for the caller to end."""
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
                # A judge of another task makes room.
                await self._idle.pop(0).end()
            return await start_judge(self._opening(task, language), self._warm, self.lease)
        finally:
            self._starting -= 1
