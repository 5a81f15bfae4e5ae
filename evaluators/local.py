"""Judges candidates on this host, in processes of their own.

- `LocalEvaluator(artifacts: Path, *, slots: int = 2, lease: Lease | None = None, limits: Limits = Limits())`
- `await evaluator.evaluate(job: EvaluateCandidate) -> EvaluationReport`, raises EvaluatorError
- `await evaluator.describe_task(task: TaskSpec, language: Language) -> TaskDescription`, raises ConfigError
- `await evaluator.aclose()`

A judge process serves one task; there are at most `slots` of them, started when needed and kept. Each runs under a
guard, so nothing of it survives this process, whatever ends it. A judge that dies is an `EvaluatorError` for its job
and is replaced for the next. Nothing of torch is imported here. All of it must run on one event loop and its thread.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import Process, UNIXSocketStream

import evaluators
from evaluators.base import EvaluationReport
from evaluators.builder import artifact_folder, load_meta
from evaluators.guarded import GuardJob, plain_environment, read_report, start_guarded, stop_guarded
from evaluators.judge.protocol import (
    HEADER_BYTES,
    Describe,
    Described,
    FromJudge,
    Judge,
    Judged,
    JudgeFailed,
    LeaseGranted,
    LeaseReturned,
    LeaseWanted,
    Limits,
    Open,
    Opened,
    ProblemBroken,
    ToJudge,
    body_bytes,
    decode_from_judge,
    encode_frame,
)
from evaluators.lease import HostLease, Lease
from evaluators.quiet import QuietDevice
from evaluators.target import check_target, probe_target
from messages.base import Language
from messages.commands import EvaluateCandidate
from messages.errors import ConfigError, EvaluatorError, ProtocolError
from messages.tasks import Target, TaskDescription, TaskSpec
from messages.verdicts import Verdict

_KEPT_VARIABLES = ("HOME", "TMPDIR", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What a judge gets of the user's environment: where things are, and what torch's default threads are."""
_LOG = "judge.log"
_NO_NUMPY = "ignore:Failed to initialize NumPy"
_OPEN_S = 300.0
_SILENCE_S = 1800.0
"""A judge that says nothing for so long hangs. Its own limits on candidates are far below."""

_Answer = TypeVar("_Answer", bound=Opened | Described | LeaseReturned | Judged)


class LocalEvaluator:
    """An `Evaluator` for the devices of this host."""

    def __init__(
        self, artifacts: Path, *, slots: int = 2, lease: Lease | None = None, limits: Limits | None = None
    ) -> None:
        """Make an evaluator; it starts nothing yet.

        Args:
            artifacts: the store that builders fill.
            slots: candidates judged at once. Only one is timed at a time.
            lease: what all evaluators that time on the same device share; None: the host's.
            limits: what candidates may use.
        """
        self._artifacts = artifacts.absolute()
        self._lease = HostLease() if lease is None else lease
        self._quiet = QuietDevice()
        self._limits = limits or Limits()
        self._slots = anyio.Semaphore(slots)
        self._room = slots
        self._alive = 0
        self._idle: list[_JudgeProcess] = []
        self._busy: set[_JudgeProcess] = set()
        self._targets: dict[Language, Target] = {}

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate.

        Raises:
            EvaluatorError: judge, artifact or device is at fault.
            ConfigError: the problem cannot be used.
        """
        begun = anyio.current_time()
        own = await self._own_target(job.candidate.language)
        check_target(own, job.target)
        meta = await anyio.to_thread.run_sync(load_meta, self._artifacts, job.artifact_id)
        if meta.candidate_id != job.candidate.candidate_id:
            raise EvaluatorError(f"artifact {job.artifact_id!r} is of another candidate", permanent=True)
        check_target(own, meta.target)
        library = artifact_folder(self._artifacts, job.artifact_id) / meta.product
        request = Judge(library=str(library), entry_point=meta.entry_point, purpose=job.purpose)
        async with self._judge(job.task, job.candidate.language) as judge:
            verdict, lease_s = await judge.judge(request, self._lease, self._quiet)
        return EvaluationReport(
            verdict=verdict, device=own.device, wall_s=anyio.current_time() - begun, lease_s=lease_s
        )

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """Run the reference once and say what there is to know about the task.

        Raises:
            ConfigError: the problem cannot be used; the text says why.
            EvaluatorError: the judge is at fault.
        """
        async with self._judge(task, language) as judge:
            return await judge.describe()

    async def aclose(self) -> None:
        """End all processes, also those at work."""
        with anyio.CancelScope(shield=True):
            judges = [*self._idle, *self._busy]
            self._idle.clear()
            async with anyio.create_task_group() as group:
                for judge in judges:
                    group.start_soon(judge.end)

    async def _own_target(self, language: Language) -> Target:
        if language not in self._targets:
            self._targets[language] = await anyio.to_thread.run_sync(probe_target, language)
        return self._targets[language]

    @asynccontextmanager
    async def _judge(self, task: TaskSpec, language: Language) -> AsyncIterator[_JudgeProcess]:
        """Lend a judge for the task. One that was interrupted or failed is ended, not kept."""
        async with self._slots:
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
                    await self._end(judge)

    async def _end(self, judge: _JudgeProcess) -> None:
        self._alive -= 1
        await judge.end()

    async def _find(self, task: TaskSpec, language: Language) -> _JudgeProcess:
        key = (task.task_id, language)
        for judge in self._idle:
            if judge.key == key:
                self._idle.remove(judge)
                return judge
        if self._idle and self._alive >= self._room:
            # One of another task makes way.
            await self._end(self._idle.pop(0))
        self._alive += 1
        try:
            async with self._quiet.checking():
                return await _start_judge(task, language, self._limits)
        except BaseException:
            self._alive -= 1
            raise


class _JudgeProcess:
    """A judge, as its evaluator holds it."""

    def __init__(self, key: tuple[str, Language], process: Process, stream: UNIXSocketStream, folder: Path) -> None:
        self.key = key
        self._folder = folder
        self._process = process
        self._stream = stream
        self._buffer = bytearray()

    async def open(self, request: Open) -> None:
        """Give the judge its task.

        Raises:
            ConfigError: the problem cannot be used.
            EvaluatorError: the judge failed.
        """
        with self._watched(_OPEN_S):
            await self._send(request)
            self._expect(await self._receive(), Opened)

    async def describe(self) -> TaskDescription:
        """Ask for the task's description.

        Raises:
            EvaluatorError: the judge failed.
        """
        with self._watched(_OPEN_S):
            await self._send(Describe())
            return self._expect(await self._receive(), Described).description

    async def judge(self, request: Judge, lease: Lease, quiet: QuietDevice) -> tuple[Verdict, float]:
        """Ask for a verdict. Returns it with the seconds for which the timing lease was held.

        Raises:
            EvaluatorError: the judge failed.
        """
        await self._send(request)
        lease_s = 0.0
        while isinstance(answer := await self._receive_soon(), LeaseWanted):
            if answer.work == "check":
                async with quiet.checking():
                    await self._take_lease()
            else:
                async with lease, quiet.timing():
                    begun = anyio.current_time()
                    await self._take_lease()
                    lease_s += anyio.current_time() - begun
        return self._expect(answer, Judged).verdict, lease_s

    async def _take_lease(self) -> None:
        """Let the judge work, until it says that it is done."""
        await self._send(LeaseGranted())
        self._expect(await self._receive_soon(), LeaseReturned)

    async def _receive_soon(self) -> FromJudge:
        with self._watched(_SILENCE_S):
            return await self._receive()

    async def end(self) -> None:
        """Kill it and all that it started."""
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
            await stop_guarded(self._process)
            await anyio.to_thread.run_sync(lambda: shutil.rmtree(self._folder, ignore_errors=True))

    @contextmanager
    def _watched(self, limit_s: float) -> Iterator[None]:
        try:
            with anyio.fail_after(limit_s):
                yield
        except TimeoutError as error:
            raise EvaluatorError(f"the judge has said nothing for {limit_s:g} s") from error

    async def _send(self, message: ToJudge) -> None:
        try:
            await self._stream.send(encode_frame(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise EvaluatorError(await self._obituary()) from error

    async def _receive(self) -> FromJudge:
        try:
            size = body_bytes(await self._exactly(HEADER_BYTES))
            return decode_from_judge(await self._exactly(size))
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise EvaluatorError(await self._obituary()) from error
        except ProtocolError as error:
            raise EvaluatorError(str(error)) from error

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._buffer += await self._stream.receive()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def _obituary(self) -> str:
        """Say that the judge died, with its last words."""
        report = await read_report(self._process)
        if report is not None and report.signal is not None:
            return f"the judge died of signal {report.signal}" + (
                " (out of memory?)" if report.signal == SIGKILL else ""
            )
        log = await anyio.to_thread.run_sync(_read_tail, self._folder / _LOG)
        last = log.strip().splitlines()[-1:] or ["it left no message"]
        return f"the judge died: {last[0][:500]}"

    def _expect(self, answer: FromJudge, kind: type[_Answer]) -> _Answer:
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, ProblemBroken):
            raise ConfigError(answer.text)
        if isinstance(answer, JudgeFailed):
            raise EvaluatorError(f"the judge failed: {answer.text}")
        raise EvaluatorError(f"the judge answered {type(answer).__name__} instead of {kind.__name__}")


async def _start_judge(task: TaskSpec, language: Language, limits: Limits) -> _JudgeProcess:
    """Start a judge and have it load the task.

    Raises:
        ConfigError: the problem cannot be used.
        EvaluatorError: the judge failed.
    """
    folder = Path(await anyio.to_thread.run_sync(lambda: tempfile.mkdtemp(prefix="ksearch-judge-")))
    ours, theirs = socket.socketpair()
    with theirs:
        job = GuardJob(
            command=(sys.executable, "-P", "-W", _NO_NUMPY, "-m", "evaluators.judge", str(theirs.fileno())),
            log_path=_LOG,
            pass_fds=(theirs.fileno(),),
            scratch=str(folder),
        )
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment = plain_environment(PYTHONPATH=str(Path(evaluators.__file__).parents[1]), **kept)
        process = await start_guarded(job, cwd=folder, environment=environment, pass_fds=(theirs.fileno(),))
    judge = _JudgeProcess((task.task_id, language), process, await UNIXSocketStream.from_socket(ours), folder)
    try:
        await judge.open(Open(task=task, language=language, limits=limits))
    except BaseException:
        await judge.end()
        raise
    return judge


def _read_tail(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-4000:]
    except FileNotFoundError:
        return ""
