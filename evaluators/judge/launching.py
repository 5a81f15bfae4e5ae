"""Starts runners: one process per candidate, a child of this process, in a process group of its own.

- `NativeLauncher(...)`: for shared libraries; a fresh interpreter each
- `WarmLauncher(...)`: for Triton programs; forked from a process that has imported torch and triton
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal, Protocol

import msgspec

import evaluators
from evaluators.judge.arena import Placed
from evaluators.judge.terms import Instance, Terms
from evaluators.languages.base import RunnerKind
from evaluators.runners.pages import HEAP_ENVIRONMENT
from messages.calls import CallForm

ROOT = str(Path(evaluators.__file__).parents[1])
_NATIVE = f"import sys; sys.path.insert(0, {ROOT!r}); from evaluators.runners.native import main; sys.exit(main())"
_INTERPRETED = "evaluators.runners.interpreted"
_MODULE = "evaluators.runners.module"
_INTERPRETED_MODULE = "evaluators.runners.interpreted_module"
_CUDA_TRITON = "evaluators.runners.cuda_triton"
_CUDA_MODULE = "evaluators.runners.cuda_module"
_CUDA_NATIVE = _NATIVE.replace("runners.native", "runners.cuda_native")
_INTERPRETS = {"TRITON_INTERPRET": "1"}
_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
_READY_S = 120.0
_FORK_S = 20.0
_WAIT_POLL_S = 0.001


class RunnerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner is told; see `evaluators/runners/`."""

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
    """Tensors of each, in the same memory."""
    calls: tuple[CallForm | None, ...]
    """What a call takes and returns, of each; null: one tensor after the other."""
    product: str
    """Path of what was built."""
    entry_point: str
    tvm_ffi: str
    private_inputs: bool
    memory_bytes: int
    file_bytes: int
    threads: int
    terms: Terms
    """The same on all workloads."""
    instances: tuple[Instance, ...] = ()
    """Of a module, for each workload; empty: it is none."""
    cache: str = ""
    """Folder for what a candidate compiles on its first call."""
    cache_bytes: int = 0
    """Largest file there."""
    cupti: str = ""
    """The library by which calls are recorded; empty: none are."""


class RunnerError(Exception):
    """No runner can be started: the judge is broken, not the candidate."""


class RunnerProcess(Protocol):
    """A runner, as its parent holds it; `subprocess.Popen` is one."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it lives."""

    def kill(self) -> None:
        """Kill it, if it lives."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code.

        Raises:
            subprocess.TimeoutExpired: it lives on.
        """


class Launcher(Protocol):
    """Starts runners of one kind."""

    pids: frozenset[int]
    """Processes below this one that are the launcher's and no candidate's."""

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        """Start a runner; its output goes to a descriptor.

        Raises:
            RunnerError: it cannot be started.
        """


class NativeLauncher:
    """Starts runners of shared libraries."""

    pids: frozenset[int] = frozenset()

    def __init__(self, code: str) -> None:
        """Make a launcher.

        Args:
            code: what the interpreter runs.
        """
        self._code = code

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

    def __init__(self, module: str, environment: dict[str, str]) -> None:
        """Start the process that they are forked from. It is ready some seconds later.

        Args:
            module: what it runs.
            environment: what it and they find in theirs besides what all do.
        """
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_ready = False
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={
                    **runner_environment(),
                    "PYTHONPATH": ROOT,
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **environment,
                    # With one thread each: threads do not survive a fork.
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        self.pids = frozenset({self._process.pid})

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        """Fork a runner.

        Raises:
            RunnerError: the process that it would be forked from has ended, or does not answer.
        """
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
    """A child process that somebody else forked."""

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
    """Starts runners of Python programs on a CPU: of those that name what only GPUs have, by a process of its own."""

    def __init__(self) -> None:
        self._plain = WarmLauncher(_MODULE, {})
        self._for_gpus = WarmLauncher(_INTERPRETED_MODULE, _INTERPRETS)
        self.pids = self._plain.pids | self._for_gpus.pids

    def start(self, spec: RunnerSpec, *, log: int) -> RunnerProcess:
        """Fork a runner.

        Raises:
            RunnerError: as `WarmLauncher.start`.
        """
        text = Path(spec.product).read_bytes()
        return (self._for_gpus if b"triton" in text or b"cuda" in text else self._plain).start(spec, log=log)


def open_launcher(kind: RunnerKind, *, for_gpus: Literal["none", "some", "all"] = "none") -> Launcher:
    """Return what starts runners of a kind.

    Args:
        kind: see `evaluators/runners/`.
        for_gpus: which candidates on a CPU are taken for programs for a GPU: `some`, those whose text says so.
    """
    match kind:
        case "native":
            return NativeLauncher(_NATIVE)
        case "cuda_native":
            return NativeLauncher(_CUDA_NATIVE)
        case "cuda_triton" | "cuda_module":
            # Asked whether there is a GPU, torch must not take it: a context does not survive a fork.
            cache = {"TRITON_CACHE_DIR": str(Path.cwd() / "triton"), "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
            return WarmLauncher(_CUDA_TRITON if kind == "cuda_triton" else _CUDA_MODULE, cache)
        case "module" if for_gpus == "all":
            return WarmLauncher(_INTERPRETED_MODULE, _INTERPRETS)
        case "module":
            return _EitherLauncher() if for_gpus == "some" else WarmLauncher(_MODULE, {})
        case _:
            return WarmLauncher(_INTERPRETED, _INTERPRETS)


def runner_environment() -> dict[str, str]:
    """Return all that a candidate finds in its environment, the number of threads aside."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, **HEAP_ENVIRONMENT, "LC_ALL": "C"}
