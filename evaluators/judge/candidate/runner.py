"""A runner process of a candidate: its start, socket, folder and log."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

import evaluators
from evaluators.build.folders import remove_tree
from evaluators.judge.candidate.side import Line
from evaluators.judge.check.terms import Instance, Terms
from evaluators.judge.data.arena import Placed
from evaluators.judge.data.memory import Buffers
from evaluators.languages.base import RunnerKind
from evaluators.process.guard import kill
from evaluators.process.printed import folded, printable
from evaluators.runners.base import HEAP_ENVIRONMENT
from messages.calls import CallForm

_TAIL = 1500


class RunnerLog:
    """Log of a runner, held by its descriptor, since a candidate may have replaced the file."""

    def __init__(self, folder: Path, product: str) -> None:
        self._folder, self._product = folder, product
        self._file = (folder / "log").open("w+b", buffering=0)

    def fileno(self) -> int:
        """Return the descriptor of the same open file, to which the runner prints."""
        return self._file.fileno()

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def tail(self) -> str:
        """Return the end of the output, without this host's paths."""
        size = os.fstat(self.fileno()).st_size
        tail = os.pread(self.fileno(), _TAIL, max(0, size - _TAIL))
        text = folded(printable(tail.decode(errors="replace")).strip())
        return text.replace(self._product, Path(self._product).name).replace(str(self._folder), ".")

    def take(self, most_bytes: int) -> bytes:
        """Return the end of the output, and empty the log."""
        size = os.fstat(self.fileno()).st_size
        printed = os.pread(self.fileno(), most_bytes, max(0, size - most_bytes))
        # The runner writes at this file's offset, since it is the same open file.
        os.lseek(self.fileno(), 0, os.SEEK_SET)
        os.ftruncate(self.fileno(), 0)
        return printed


ROOT = str(Path(evaluators.__file__).parents[1])
_INTERPRETS = {"TRITON_INTERPRET": "1"}
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_READY_S = 120.0
_FORK_S = 20.0
_WAIT_POLL_S = 0.001


class RunnerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a runner; see `evaluators/runners/`."""

    judge_pid: int
    nonce: int
    folder: str
    """Its working directory."""
    control_fd: int
    inputs_fd: int
    inputs_bytes: int
    outputs_fd: int
    outputs_bytes: int
    workloads: tuple[tuple[Placed, ...], ...]
    """Tensors of each workload, in the same memory."""
    calls: tuple[CallForm | None, ...]
    """Arguments and results of a call on each workload; None: one tensor after the other."""
    product: str
    """Path of the build product."""
    entry_point: str
    tvm_ffi: str
    private_inputs: bool
    memory_bytes: int
    file_bytes: int
    threads: int
    terms: Terms
    """The same for all workloads."""
    instances: tuple[Instance, ...] = ()
    """A module's instance for each workload; empty: it is not a module."""
    cache: str = ""
    """Folder for kernels that a candidate compiles on its first call."""
    cache_bytes: int = 0
    """Largest file there."""
    cupti: str = ""
    """The library that records calls; empty: none are recorded."""


class RunnerError(Exception):
    """No runner can be started: the judge is broken, not the candidate."""


class Launcher(Protocol):
    """Starts runners of one kind."""

    pids: frozenset[int]
    """Child processes that belong to the launcher, not to a candidate."""

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        """Start a runner; its output goes to a descriptor."""


class NativeLauncher:
    """Starts runners of shared libraries."""

    pids: frozenset[int] = frozenset()

    def __init__(self, code: str) -> None:
        self._code = f"import sys; sys.path.insert(0, {ROOT!r})\n{code}"

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        """Start a runner."""
        return subprocess.Popen(  # noqa: S603 - our own code; what it loads is the point of the exercise
            [sys.executable, "-I", "-S", "-c", self._code, msgspec.json.encode(spec).decode()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=spec.folder,
            env={**runner_environment(), "OMP_NUM_THREADS": str(spec.threads)},
            pass_fds=(spec.control_fd, spec.inputs_fd, spec.outputs_fd),
            process_group=0,
        )


class WarmLauncher:
    """Starts runners of Triton programs."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_ready = False
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-P", "-m", "evaluators.runners", name, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={
                    **runner_environment(),
                    "PYTHONPATH": ROOT,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **environment,
                    # One thread each, since threads do not survive a fork.
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self.pids = frozenset({self._process.pid})

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        """Fork a runner."""
        if not self._is_ready:
            self._receive(_READY_S)
            self._is_ready = True
        try:
            fds = [spec.control_fd, spec.inputs_fd, spec.outputs_fd, log]
            socket.send_fds(self._control, [msgspec.json.encode(spec)], fds)
        except OSError as error:
            raise RunnerError(f"the warm interpreter process is gone: {error}") from error
        return _Forked(int(self._receive(_FORK_S)))

    def _receive(self, limit_s: float) -> bytes:
        self._control.settimeout(limit_s)
        try:
            answer = self._control.recv(64)
        except OSError as error:
            raise RunnerError(f"the warm interpreter process does not answer: {error}") from error
        if not answer:
            raise RunnerError("the warm interpreter process has ended; are torch, triton and numpy installed?")
        return answer


class _Forked:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_WAIT_POLL_S)
        return code


class _EitherLauncher:
    """Starts runners of Python programs on a CPU; programs that name GPU-only features get a process of their own."""

    def __init__(self) -> None:
        self._plain = WarmLauncher("module", {})
        self._for_gpus = WarmLauncher("interpreted_module", _INTERPRETS)
        self.pids = self._plain.pids | self._for_gpus.pids

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        text = Path(spec.product).read_bytes()
        return (self._for_gpus if b"triton" in text or b"cuda" in text else self._plain).start(spec, log=log)


RunnerProcess: TypeAlias = subprocess.Popen[bytes] | _Forked


def open_launcher(kind: RunnerKind, *, for_gpus: Literal["none", "some", "all"] = "none") -> Launcher:
    """Return a launcher of a kind; `for_gpus`: the candidates on a CPU that are treated as programs for a GPU."""
    match kind:
        case "native" | "cuda_native":
            module = "cuda" if kind == "cuda_native" else "native"
            return NativeLauncher(f"from evaluators.runners.{module} import main; sys.exit(main())")
        case "cuda_triton" | "cuda_module":
            # torch must not take the GPU when asked whether there is one: a context does not survive a fork.
            cache = {"TRITON_CACHE_DIR": str(Path.cwd() / "triton"), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
            return WarmLauncher(kind, cache)
        case "module" if for_gpus == "all":
            return WarmLauncher("interpreted_module", _INTERPRETS)
        case "module":
            return _EitherLauncher() if for_gpus == "some" else WarmLauncher("module", {})
        case _:
            return WarmLauncher("interpreted", _INTERPRETS)


def runner_environment() -> dict[str, str]:
    """Return the environment of a candidate, without the number of threads."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, **HEAP_ENVIRONMENT, "LC_ALL": "C"}


_END_S = 20.0
"""Seconds for releasing memory at the end, which takes longer on a busy host."""


class Own(NamedTuple):
    """The part of a `RunnerSpec` that differs between processes."""

    nonce: int
    folder: str
    control_fd: int
    inputs_fd: int


class Runner:
    """One process. Its creator must `close` it."""

    def __init__(
        self, spec_of: Callable[[Own], RunnerSpec], launcher: Launcher, buffers: Buffers, *, stops: bool
    ) -> None:
        # Inside the judge's own folder, which is removed with the judge.
        self._is_closed = False
        self._folder = Path(tempfile.mkdtemp(prefix="run-", dir=Path.cwd()))
        nonce = int.from_bytes(os.urandom(8), "little")
        with ExitStack() as begun:
            begun.callback(remove_tree, self._folder)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            begun.enter_context(ours)
            inputs_fd = buffers.inputs.open_read_only()
            try:
                spec = spec_of(Own(nonce, str(self._folder), theirs.fileno(), inputs_fd))
                self.log = RunnerLog(self._folder, spec.product)
                begun.callback(self.log.close)
                self.process = launcher.start(spec, log=self.log.fileno())
            finally:
                theirs.close()
                os.close(inputs_fd)
            self.pid = self.process.pid
            self.line = Line(ours, self.pid, nonce, stops=stops)
            begun.pop_all()

    @property
    def lives(self) -> bool:
        """True if it has not ended."""
        return self.process.poll() is None

    @property
    def segfaulted(self) -> bool:
        """True if it ended by an invalid memory access."""
        return self.process.returncode in {-signal.SIGSEGV, -signal.SIGBUS}

    def kill(self) -> None:
        """Demote all its threads, kill it if it is alive, and wait until it has ended."""
        if not self.lives:
            return
        kill(self.pid)
        try:
            self.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired as error:
            raise RunnerError(f"a runner would not die: process {self.pid} was killed {_END_S:g} s ago") from error

    def close(self) -> None:
        """Kill it, and remove its files. A second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        self.line.close()
        self.log.close()
        remove_tree(self._folder)


def say_end(code: int) -> str:
    """Return how a process ended, in words, from its exit code, or the negative number of a signal."""
    if code >= 0:
        return f"its process ended by itself with exit code {code}"
    name = signal.Signals(-code).name
    more = " (it ran out of memory, or something outside killed it)" if name == "SIGKILL" else ""
    return f"its process died of {name}{more}"
