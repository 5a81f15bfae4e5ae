"""The candidate's side: a runner process per candidate, and what its end means."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from evaluators.guard import kill_descendants
from evaluators.judge.arena import Area
from evaluators.judge.launching import Launcher, RunnerSpec
from evaluators.judge.problem import Tensors
from evaluators.judge.protocol import Artifact, Limits
from evaluators.judge.side import Answer, Line, NoAnswerError, Stage
from evaluators.languages.base import LanguageSupport
from evaluators.languages.cpp.toolchain import tvm_ffi_folder
from evaluators.runners.base import CALL, EMPTY, LOAD, LOADED
from messages.tasks import TensorSpec
from messages.verdicts import Crashed, DidNotBuild, Rejected, TimedOut

_EMPTY_CALLS = 15
_THREAD_BYTES = 256 << 20
"""Address space that a thread may need besides: its stack, and an arena of malloc's."""
_LOG_TAIL = 1500
_END_S = 5.0

_Failure = TypeVar("_Failure", bound=Crashed | DidNotBuild)


class CandidateFailedError(Exception):
    """The candidate's process did not do its part; carries the verdict."""

    def __init__(self, verdict: Crashed | TimedOut | Rejected | DidNotBuild) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Buffers:
    """The memory in which candidates of one task are called."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.inputs = Area("inputs", [spec for spec in specs if spec.role != "output"], guarded=False)
        self.outputs = Area("outputs", [spec for spec in specs if spec.role == "output"], guarded=True)

    def lay(self, inputs: Tensors, state: Tensors) -> None:
        """Write a call's data."""
        self.inputs.fill((*inputs, *state))


class CandidateSide:
    """A loaded candidate. A context manager: on exit its process and all that descends from it are killed."""

    def __init__(
        self,
        buffers: Buffers,
        artifact: Artifact,
        support: LanguageSupport,
        launcher: Launcher,
        limits: Limits,
        *,
        threads: int,
        keep: frozenset[int],
        private_inputs: bool = False,
    ) -> None:
        """Prepare; entering the context starts the process.

        Args:
            buffers: shared memory of the task.
            artifact: what was built.
            support: of its language.
            launcher: starts its runner.
            limits: what it may use.
            threads: how many OpenMP uses; as many as the reference.
            keep: process ids below this process that are not the candidate's.
            private_inputs: let it write to a copy of its inputs, to see whether that is what it does.
        """
        self._buffers = buffers
        self._artifact = artifact
        self._support = support
        self._launcher = launcher
        self._limits = limits
        self._threads = threads
        self._keep = keep
        self._private_inputs = private_inputs
        self._stage: Stage = "start"
        self._calls = 0
        self.empty_ns = 0

    def __enter__(self) -> CandidateSide:
        # Inside the judge's own folder: whoever ends the judge removes this with it.
        self._folder = Path(tempfile.mkdtemp(prefix="run-", dir=Path.cwd()))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inputs_fd = self._buffers.inputs.open_read_only()
        nonce = int.from_bytes(os.urandom(8), "little")
        spec = RunnerSpec(
            judge_pid=os.getpid(),
            nonce=nonce,
            folder=str(self._folder),
            control_fd=theirs.fileno(),
            inputs_fd=inputs_fd,
            inputs_bytes=self._buffers.inputs.size_bytes,
            outputs_fd=self._buffers.outputs.fd,
            outputs_bytes=self._buffers.outputs.size_bytes,
            tensors=(*self._buffers.inputs.placed, *self._buffers.outputs.placed),
            product=self._artifact.product,
            entry_point=self._artifact.entry_point,
            tvm_ffi=_tvm_ffi_library(),
            private_inputs=self._private_inputs,
            memory_bytes=self._memory_bytes(),
            file_bytes=self._limits.printed_bytes,
            threads=self._threads,
        )
        with theirs, (self._folder / "log").open("wb") as log:
            self._process = self._launcher.start(spec, log=log.fileno())
        os.close(inputs_fd)
        self._line = Line(ours, self._process.pid, nonce)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._line.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def load(self) -> None:
        """Measure empty calls, then load the artifact.

        Raises:
            CandidateFailedError: it cannot be loaded.
        """
        limit_s = self._limits.load_s
        self.empty_ns = min(self.ask(EMPTY, limit_s=limit_s).elapsed_ns for _ in range(_EMPTY_CALLS))
        self._stage = "load"
        status = self.ask(LOAD, limit_s=limit_s).status
        if status != LOADED:
            failure = self._support.explain_load_failure(status, self._log_tail())
            raise CandidateFailedError(self._at_stage(failure))
        self._stage = "first call"

    def hurry(self, *, first: bool) -> bool:
        """Put it before other processes of the host, or back; False where that is not permitted."""
        return self._line.hurry(first=first)

    def ask(self, operation: int, *, limit_s: float) -> Answer:
        """Let the candidate run until it answers.

        Raises:
            CandidateFailedError: it does not, or a call returns something else than 0.
        """
        try:
            answer = self._line.exchange(operation, limit_s=limit_s)
        except NoAnswerError as silence:
            raise CandidateFailedError(self._explain(silence)) from None
        if operation == CALL:
            if answer.status != 0:
                failure = self._support.explain_call_failure(answer.status, self._log_tail())
                raise CandidateFailedError(self._at_stage(failure))
            self._calls += 1
            self._stage = "call"
        return answer

    def call_limit_s(self, later_s: float) -> float:
        """Return how long the next call may take, given what a later one may: the first may take longer."""
        return later_s if self._calls else max(later_s, self._limits.first_call_s)

    def call(self, *, limit_s: float) -> Answer:
        """Call the candidate once.

        Raises:
            CandidateFailedError: see `ask`.
        """
        return self.ask(CALL, limit_s=limit_s)

    def _at_stage(self, failure: _Failure) -> _Failure:
        return msgspec.structs.replace(failure, stage=self._stage) if isinstance(failure, Crashed) else failure

    def _explain(self, silence: NoAnswerError) -> Crashed | TimedOut | Rejected:
        """Say why there was no answer. The process is dead afterwards."""
        stage = self._stage
        if silence.kind == "timed out":
            self._end()
            reason = f"killed after {silence.limit_s:g} s without an answer ({stage})"
            return TimedOut(reason=reason, stage=stage, limit_s=silence.limit_s)
        if silence.kind == "cannot be stopped":
            self._end()
            return Rejected(reason="its process cannot be stopped between calls", rule="control")
        if silence.kind == "bad frame":
            self._end()
            return Rejected(reason="it wrote to its runner's control socket", rule="control")
        try:
            code = self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._end()
            return Rejected(reason="it closed its runner's control socket", rule="control")
        return Crashed(reason=f"{_say_end(code)} ({stage})", stage=stage, log=self._log_tail())

    @property
    def segfaulted(self) -> bool:
        """Whether the process ended by an access to memory that it may not touch."""
        return self._process.returncode in {-signal.SIGSEGV, -signal.SIGBUS}

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        kill_descendants(keep=self._keep)

    def _log_tail(self) -> str:
        text = (self._folder / "log").read_bytes()[-_LOG_TAIL:].decode(errors="replace").strip()
        return text.replace(self._artifact.product, Path(self._artifact.product).name).replace(str(self._folder), ".")

    def _memory_bytes(self) -> int:
        shared = self._buffers.inputs.size_bytes + self._buffers.outputs.size_bytes
        return shared + self._limits.memory_bytes + _THREAD_BYTES * self._threads


def _say_end(code: int) -> str:
    if code >= 0:
        return f"its process ended by itself with exit code {code}"
    name = signal.Signals(-code).name
    more = " (it ran out of memory, or something outside killed it)" if name == "SIGKILL" else ""
    return f"its process died of {name}{more}"


def _tvm_ffi_library() -> str:
    folder = tvm_ffi_folder()
    return "" if folder is None else str(folder / "lib" / "libtvm_ffi.so")
