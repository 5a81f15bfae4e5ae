"""Starts processes under a guard (`guard.py`): programs, or forks of a warm process (`warm.py`).

This is the only way to run a compiler or a judge here. All functions must be called on the event loop's thread: guards
and commands end with the thread that started them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from messages.base import EvaluatorError

GUARD = Path(__file__).with_name("guard.py")
ROOT = str(Path(__file__).parents[2])
"""Folder from which our packages are imported."""
_STOP_S = 10.0
_REPORT_BYTES = 1 << 16


class GuardJob(msgspec.Struct, frozen=True, kw_only=True):
    """A command and its limits."""

    command: tuple[str, ...]
    wall_s: float = 0.0
    """0: no limit, as below."""
    cpu_s: int = 0
    memory_bytes: int = 0
    """Address space of each process."""
    file_bytes: int = 0
    """Largest file that it may write."""
    idle: bool = False
    """Run only while no other process wants the core."""
    log_path: str = ""
    """File for the output; empty: the guard's standard error."""
    log_bytes: int = 1 << 20
    """Bytes of output that are kept."""
    pass_fds: tuple[int, ...] = ()
    scratch: str = ""
    """Folder that is removed if the parent dies."""
    isolation: str = ""
    """`auto`: confined to the working directory (`sandbox/`); `strict`: confined or not run; empty: not confined."""
    reads: tuple[str, ...] = ()
    """Further paths that a confined command may read, besides the system's files."""
    watched: bool = False
    """The command reports progress (`watchdog.py`), and is killed when it makes none."""


class GuardReport(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a guarded command."""

    how: str
    """`ended`, `timed_out` or, of a judge that made no progress, `stalled`."""
    exit_code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    """CPU seconds of the command and all its descendants."""
    wanted_core: bool
    """True if a part of it was not asleep when it was stopped at its limit."""
    max_rss_bytes: int
    log_cut: bool
    undying: tuple[str, ...] = ()
    """Processes that were killed and still exist."""


_report = msgspec.json.Decoder(GuardReport)


class Guard(Protocol):
    """The guard of a running command: a process of its own, or forked from a warm one."""

    async def report(self) -> GuardReport | None:
        """Wait for the command's end and report it; None if the guard itself died."""

    async def stop(self) -> None:
        """Kill everything, and wait for that. Not cancelled, but bounded."""


class OwnGuard:
    """A guard that is a process of its own, started by `start_guarded`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def report(self) -> GuardReport | None:
        """See `Guard`."""
        if self._process.stdout is None:
            return None
        try:
            line = await BufferedByteReceiveStream(self._process.stdout).receive_until(b"\n", _REPORT_BYTES)
        except (anyio.IncompleteRead, anyio.DelimiterNotFound, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return None
        return _report.decode(line)

    async def stop(self) -> None:
        """See `Guard`."""
        await stop_guarded(self._process)


class WarmGuard:
    """A guard that was forked from a warm process; a socket is its standard input and output."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def report(self) -> GuardReport | None:
        """See `Guard`."""
        line = await self._read_line()
        return _report.decode(line) if line else None

    async def stop(self) -> None:
        """See `Guard`."""
        with self._connection, anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_S):
            try:
                self._connection.shutdown(socket.SHUT_WR)
                await self._read_line()
            except OSError:
                return

    async def _read_line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            await anyio.wait_readable(self._connection)
            try:
                chunk = self._connection.recv(_REPORT_BYTES)
            except BlockingIOError:
                continue
            except ConnectionError:  # it died with our last words unread
                break
            if not chunk:
                break
            line += chunk
        return line


async def run_guarded(job: GuardJob, *, cwd: Path, environment: dict[str, str]) -> GuardReport:
    """Run a command to its end or its limit. If cancelled, the command and all its descendants are killed first.

    Raises:
        EvaluatorError: the guard could not be started, or reported nothing.
    """
    report = await _report_of(OwnGuard(await start_guarded(job, cwd=cwd, environment=environment)))
    if report is None:
        raise EvaluatorError(f"the guard of {job.command[0]!r} died")
    return report


async def _report_of(guard: Guard) -> GuardReport | None:
    try:
        return await guard.report()
    finally:
        await guard.stop()


async def start_guarded(
    job: GuardJob, *, cwd: Path, environment: dict[str, str], pass_fds: Sequence[int] = ()
) -> Process:
    """Start a guard. The caller must `stop_guarded` it.

    Raises:
        EvaluatorError: it could not be started.
    """
    try:
        return await anyio.open_process(
            [sys.executable, "-I", "-S", str(GUARD), msgspec.json.encode(job).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env=environment,
            pass_fds=pass_fds,
        )
    except OSError as error:
        raise EvaluatorError(f"cannot start a process: {error}") from error


async def stop_guarded(process: Process) -> None:
    """Kill everything under a guard, and wait for that. Not cancelled by the caller's scope, but bounded."""
    with anyio.CancelScope(shield=True):
        if process.stdin is not None:
            await process.stdin.aclose()
        with anyio.move_on_after(_STOP_S):
            await process.wait()
        if process.returncode is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                await stream.aclose()


def plain_environment(**more: str) -> dict[str, str]:
    """Return a small environment without secrets: only the path of programs and the C locale."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", **more}


class WarmProcess:
    """Starts the warm process with the first order, and again if it has ended. It ends with this object."""

    def __init__(self, module: str, *, environment: dict[str, str] | None = None, flags: Sequence[str] = ()) -> None:
        """Begin with the module to import, its environment and the interpreter's flags."""
        self._module = module
        self._environment = environment or plain_environment(PYTHONPATH=ROOT, PYTHONDONTWRITEBYTECODE="1")
        self._flags = flags
        self._control: socket.socket | None = None
        self._end: weakref.finalize[..., WarmProcess] | None = None

    async def run(self, job: GuardJob, *, cwd: Path, environment: dict[str, str]) -> GuardReport:
        """Run a build to its end or its limit. If cancelled, it and all its descendants are killed first."""
        report = await _report_of(self.start(job, cwd=cwd, environment=environment))
        if report is None:
            self.close()
            raise EvaluatorError(f"the warm process for builds ended: can {self._module} be imported here?")
        return report

    def start(
        self, job: GuardJob, *, cwd: Path, environment: dict[str, str], passed: socket.socket | None = None
    ) -> WarmGuard:
        """Start a command with a socket for its `main`. The caller must `stop` it."""
        order = msgspec.json.encode({"folder": str(cwd), "environment": environment, "job": job})
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self._send(order, [theirs.fileno(), *([passed.fileno()] if passed else [])])
        return WarmGuard(ours)

    def begin(self) -> None:
        """Start it before the first order, if it was not started yet."""
        if self._control is None:
            self._start()

    def close(self) -> None:
        """End the warm process; running commands continue, and the next command starts another warm process."""
        if self._end is not None:
            self._end()
        self._control = self._end = None

    def _send(self, order: bytes, descriptors: list[int]) -> None:
        for is_last in (False, True):
            control = self._control or self._start()
            try:
                socket.send_fds(control, [order], descriptors)
            except OSError as error:
                self.close()
                if is_last:
                    raise EvaluatorError(f"the warm process of {self._module} does not answer: {error}") from error
            else:
                return

    def _start(self) -> socket.socket:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            named = (self._module, str(theirs.fileno()), str(os.getpid()))
            try:
                process = subprocess.Popen(  # noqa: S603 - our own code
                    [sys.executable, "-P", *self._flags, "-m", "evaluators.process.warm", *named],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=self._environment,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,
                )
            except OSError as error:
                control.close()
                raise EvaluatorError(f"cannot start a process: {error}") from error
        self._control = control
        self._end = weakref.finalize(self, _stop, process, control)
        return control


def _stop(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.kill()
    process.wait()
