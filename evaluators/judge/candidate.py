"""The candidate's side: a runner process per candidate, and what its end means."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from evaluators import runner
from evaluators.guard import kill_descendants
from evaluators.judge.arena import Area, Placed
from evaluators.judge.problem import Tensors
from evaluators.judge.protocol import Limits
from evaluators.judge.side import Answer, Line, NoAnswerError, Stage
from evaluators.languages.cpp.toolchain import tvm_ffi_folder
from messages.tasks import TensorSpec
from messages.verdicts import Crashed, DidNotBuild, Rejected, TimedOut

_SCRIPT = Path(runner.__file__)
_EMPTY_CALLS = 15
_THREAD_BYTES = 256 << 20
"""Address space that a thread may need besides: its stack, and an arena of malloc's."""
_LOG_TAIL = 1500
_END_S = 5.0


class RunnerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is told; see `evaluators/runner.py`."""

    judge_pid: int
    nonce: int
    control_fd: int
    inputs_fd: int
    inputs_bytes: int
    outputs_fd: int
    outputs_bytes: int
    tensors: tuple[Placed, ...]
    library: str
    entry_point: str
    tvm_ffi: str
    private_inputs: bool
    memory_bytes: int
    file_bytes: int


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
        library: str,
        entry_point: str,
        limits: Limits,
        *,
        threads: int,
        keep: frozenset[int],
        private_inputs: bool = False,
    ) -> None:
        """Prepare; entering the context starts the process.

        Args:
            buffers: shared memory of the task.
            library: path of the artifact.
            entry_point: name of its function.
            limits: what it may use.
            threads: how many OpenMP uses; as many as the reference.
            keep: process ids below this process that are not the candidate's.
            private_inputs: let it write to a copy of its inputs, to see whether that is what it does.
        """
        self._buffers = buffers
        self._library = library
        self._entry_point = entry_point
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
            control_fd=theirs.fileno(),
            inputs_fd=inputs_fd,
            inputs_bytes=self._buffers.inputs.size_bytes,
            outputs_fd=self._buffers.outputs.fd,
            outputs_bytes=self._buffers.outputs.size_bytes,
            tensors=(*self._buffers.inputs.placed, *self._buffers.outputs.placed),
            library=self._library,
            entry_point=self._entry_point,
            tvm_ffi=_tvm_ffi_library(),
            private_inputs=self._private_inputs,
            memory_bytes=self._memory_bytes(),
            file_bytes=self._limits.printed_bytes,
        )
        with theirs, (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own script; what it loads is the point of the exercise
                [sys.executable, "-I", "-S", str(_SCRIPT), msgspec.json.encode(spec).decode()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=_environment(self._threads),
                pass_fds=(theirs.fileno(), inputs_fd, self._buffers.outputs.fd),
                process_group=0,
            )
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
        self.empty_ns = min(self.ask(runner.EMPTY, limit_s=limit_s).elapsed_ns for _ in range(_EMPTY_CALLS))
        self._stage = "load"
        status = self.ask(runner.LOAD, limit_s=limit_s).status
        if status == runner.NO_ENTRY_POINT:
            raise CandidateFailedError(DidNotBuild(reason=f"{self._entry_point} is not exported"))
        if status not in {runner.LOADED_RAW, runner.LOADED_TVM_FFI}:
            log = self._log_tail()
            last = log.splitlines()[-1:] or ["no message"]
            raise CandidateFailedError(
                Crashed(reason=f"the library cannot be loaded: {last[0]}", stage="load", log=log)
            )
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
        if operation == runner.CALL:
            if answer.status != 0:
                raise CandidateFailedError(
                    Crashed(
                        reason=f"{self._entry_point} returned {answer.status} instead of 0",
                        stage=self._stage,
                        log=self._log_tail(),
                    )
                )
            self._calls += 1
            self._stage = "call"
        return answer

    def call(self, *, limit_s: float) -> Answer:
        """Call the candidate once; the first call may take longer.

        Raises:
            CandidateFailedError: see `ask`.
        """
        limit_s = limit_s if self._calls else max(limit_s, self._limits.first_call_s)
        return self.ask(runner.CALL, limit_s=limit_s)

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
        return text.replace(self._library, Path(self._library).name).replace(str(self._folder), ".")

    def _memory_bytes(self) -> int:
        shared = self._buffers.inputs.size_bytes + self._buffers.outputs.size_bytes
        return shared + self._limits.memory_bytes + _THREAD_BYTES * self._threads


def _say_end(code: int) -> str:
    if code >= 0:
        return f"its process ended by itself with exit code {code}"
    name = signal.Signals(-code).name
    more = " (it ran out of memory, or something outside killed it)" if name == "SIGKILL" else ""
    return f"its process died of {name}{more}"


def _environment(threads: int) -> dict[str, str]:
    """Return all that a candidate finds in its environment."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "LC_ALL": "C", "OMP_NUM_THREADS": str(threads)}


def _tvm_ffi_library() -> str:
    folder = tvm_ffi_folder()
    return "" if folder is None else str(folder / "lib" / "libtvm_ffi.so")
