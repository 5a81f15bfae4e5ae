"""A judge process as its evaluator handles it: started under a guard, called by frames, ended with all children."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from signal import SIGKILL
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.abc import UNIXSocketStream

from evaluators.hardware.target import platform_of, visible_gpu
from evaluators.judge.protocol import (
    HEADER_BYTES,
    Artifact,
    Check,
    Describe,
    Described,
    FromJudge,
    Judged,
    JudgeFailed,
    Open,
    Opened,
    Passed,
    ProblemBroken,
    Profile,
    Profiled,
    Time,
    ToJudge,
    body_bytes,
    decode_from_judge,
    encode_frame,
)
from evaluators.languages.interpreting import is_interpreted
from evaluators.process.device_lease import Lease
from evaluators.process.guarded import ROOT, Guard, GuardJob, OwnGuard, WarmProcess, plain_environment, start_guarded
from evaluators.runners.base import HEAP_ENVIRONMENT
from messages.base import ConfigError, EvaluatorError, Language, ProtocolError
from messages.commands import Purpose
from messages.tasks import TaskDescription
from messages.verdicts import Verdict

_KEPT_VARIABLES = (
    "HOME",
    "XDG_CACHE_HOME",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)
"""The user's variables that a judge gets: paths, and torch's default threads."""
_ENTRY = "evaluators.judge.entry"
_FLAGS = ("-W", "ignore:Failed to initialize NumPy")
_LOG = "judge.log"
_OPEN_S = 300.0
_SILENCE_S = 1800.0
"""Seconds of silence after which a judge is considered hung. Its own limits on candidates are far below."""

_Answer = TypeVar("_Answer", bound=Opened | Described | Judged | Profiled)


class JudgeProcess:
    """The evaluator's handle to a judge."""

    def __init__(self, key: tuple[str, Language], guard: Guard, stream: UNIXSocketStream, folder: Path) -> None:
        self.key = key
        self._folder = folder
        self._guard = guard
        self._stream = stream
        self._buffer = bytearray()
        self._is_open = False
        self.is_sound = True
        """True if it can be used again."""

    async def begin(self, request: Open) -> None:
        """Give the judge its task, which it begins to load."""
        with self._watched(_OPEN_S):
            await self._send(request)

    async def opened(self) -> None:
        """Wait until it has loaded its task."""
        if self._is_open:
            return
        with self._watched(_OPEN_S):
            self._expect(await self._receive(), Opened)
        self._is_open = True

    async def describe(self) -> TaskDescription:
        """Ask for the task's description."""
        return self._expect(await self._ask(Describe(), _OPEN_S), Described).description

    async def check(self, artifact: Artifact, purpose: Purpose, keep_above: float | None = None) -> Passed | Judged:
        """Check whether a candidate is correct. Returns that it passed, or a verdict.

        On a GPU, a candidate far below `keep_above` (see `EvaluateCandidate`) may be stopped early.
        """
        answer = await self._ask(Check(artifact=artifact, purpose=purpose, keep_above=keep_above))
        return answer if isinstance(answer, Passed) else self._expect(answer, Judged)

    async def time(self, artifact: Artifact, purpose: Purpose, keep_above: float | None = None) -> Verdict:
        """Time a correct candidate; `keep_above` as in `EvaluateCandidate`."""
        answer = await self._ask(Time(artifact=artifact, purpose=purpose, keep_above=keep_above))
        return self._expect(answer, Judged).verdict

    async def profile(self, artifact: Artifact) -> Profiled:
        """Record the GPU's activity in a call of a timed candidate.

        If the judge fails at that it is no longer sound, and there is no profile; the measurement stays valid.
        """
        try:
            return self._expect(await self._ask(Profile(artifact=artifact)), Profiled)
        except EvaluatorError as error:
            self.is_sound = False
            return Profiled(error=str(error))

    async def _ask(self, request: ToJudge, limit_s: float = _SILENCE_S) -> FromJudge:
        with self._watched(limit_s):
            await self._send(request)
            return await self._receive()

    async def end(self) -> None:
        """Kill it and all its children."""
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
            await self._guard.stop()
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
        report = await self._guard.report()
        if report is not None and report.how == "stalled":
            remains = f"; would not die: {', '.join(report.undying)}" if report.undying else ""
            return f"the judge made no progress; its watchdog demoted and killed it{remains}"
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
            raise EvaluatorError(f"the judge failed: {answer.text}", permanent=answer.permanent)
        raise EvaluatorError(f"the judge answered {type(answer).__name__} instead of {kind.__name__}")


def warm_judges() -> WarmProcess:
    """Return the parent process of judges on a CPU, with their common imports, which take 2.5 s of a core's time."""
    return WarmProcess(_ENTRY, environment=_environment(), flags=_FLAGS)


async def start_judge(opening: Open, warm: WarmProcess, lease: Lease | None = None) -> JudgeProcess:
    """Start a judge and load its task, under the lease: on a GPU loading disturbs timings.

    Raises:
        ConfigError: the problem cannot be used.
        EvaluatorError: the judge failed.
    """
    async with lease or nullcontext():
        judge = await begin_judge(opening, warm)
        try:
            await judge.opened()
        except BaseException:
            await judge.end()
            raise
    return judge


async def begin_judge(opening: Open, warm: WarmProcess) -> JudgeProcess:
    """Start a judge that begins to load its task; wait for `opened` before any request."""
    folder, ours, theirs = await anyio.to_thread.run_sync(_prepare)
    platform = platform_of(opening.device)
    own = {"TRITON_INTERPRET": "1"} if is_interpreted(opening.task, platform) else {}
    own |= visible_gpu(opening.device) | _compiler_caches(opening, folder)
    environment = _environment(**own)
    with theirs:
        job = GuardJob(
            command=(sys.executable, "-P", *_FLAGS, "-m", _ENTRY, str(theirs.fileno())),
            log_path=_LOG,
            pass_fds=(theirs.fileno(),),
            scratch=str(folder),
            idle=opening.work == "check",
            watched=opening.work != "check",
        )
        guard: Guard
        if platform == "cpu" and not own:
            guard = warm.start(job, cwd=folder, environment=environment, passed=theirs)
        else:
            process = await start_guarded(job, cwd=folder, environment=environment, pass_fds=(theirs.fileno(),))
            guard = OwnGuard(process)
    key = (opening.task.task_id, opening.language)
    judge = JudgeProcess(key, guard, await UNIXSocketStream.from_socket(ours), folder)
    try:
        await judge.begin(opening)
    except BaseException:
        await judge.end()
        raise
    return judge


def _environment(**own: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return plain_environment(PYTHONPATH=ROOT, **kept, **HEAP_ENVIRONMENT, **own)


def _prepare() -> tuple[Path, socket.socket, socket.socket]:
    try:
        with ExitStack() as begun:
            ours, theirs = map(begun.enter_context, socket.socketpair())
            folder = Path(tempfile.mkdtemp(prefix="ksearch-judge-"))
            begun.pop_all()
    except OSError as error:
        raise EvaluatorError(f"cannot start a judge: {error}") from error
    return folder, ours, theirs


def _compiler_caches(opening: Open, folder: Path) -> dict[str, str]:
    """Let `torch.compile` of a baseline keep its files in the judge's folder, and compile in its own process."""
    if not opening.baseline:
        return {}
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "inductor-triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _read_tail(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-4000:]
    except FileNotFoundError:
        return ""
