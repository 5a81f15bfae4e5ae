"""Runs builds and judges in processes forked from a warm one (`warm.py`), guarded as in `guarded.py`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

import evaluators
from evaluators.process.guarded import REPORT, GuardJob, GuardReport, plain_environment, report_of
from messages.base import EvaluatorError

_ROOT = str(Path(evaluators.__file__).parents[1])
_STOP_S = 10.0
_REPORT_BYTES = 1 << 16


class WarmOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One build or judge, as the warm process receives it."""

    folder: str
    environment: dict[str, str]
    job: GuardJob


class WarmGuard:
    """A guard that was forked from a warm process, held by its standard input and output."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    async def report(self) -> GuardReport | None:
        """Wait for the command's end and return how it was; None if the guard itself died."""
        line = await _read_line(self._connection)
        return REPORT.decode(line) if line else None

    async def stop(self) -> None:
        """Have the guard kill all that is left, and wait until it has; not cancelled, but bounded."""
        with self._connection, anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_S):
            try:
                self._connection.shutdown(socket.SHUT_WR)
                await _read_line(self._connection)
            except OSError:
                return


class WarmProcess:
    """Starts the warm process with the first order, and again if it has ended. It ends with this object."""

    def __init__(self, module: str, *, environment: dict[str, str] | None = None, flags: Sequence[str] = ()) -> None:
        """Take note of the module; see `warm.py`.

        Args:
            module: what it imports.
            environment: in which it does; None: a plain one.
            flags: of its interpreter.
        """
        self._module = module
        self._environment = environment or plain_environment(PYTHONPATH=_ROOT, PYTHONDONTWRITEBYTECODE="1")
        self._flags = flags
        self._control: socket.socket | None = None
        self._end: weakref.finalize[..., WarmProcess] | None = None

    async def run(self, job: GuardJob, *, cwd: Path, environment: dict[str, str]) -> GuardReport:
        """Run a build to its end or its limit. Cancelled: it and all its descendants are killed first.

        Raises:
            EvaluatorError: the warm process cannot be started, or the guard said nothing.
        """
        report = await report_of(self.start(job, cwd=cwd, environment=environment))
        if report is None:
            self.close()
            raise EvaluatorError(f"the warm process for builds ended: can {self._module} be imported here?")
        return report

    def start(
        self, job: GuardJob, *, cwd: Path, environment: dict[str, str], passed: socket.socket | None = None
    ) -> WarmGuard:
        """Start a command. The caller must `stop` it.

        Args:
            job: its bounds.
            cwd: where it runs.
            environment: what it has besides the warm process's own.
            passed: what `main` gets.

        Raises:
            EvaluatorError: the warm process cannot be started.
        """
        order = msgspec.json.encode(WarmOrder(folder=str(cwd), environment=environment, job=job))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            self._send(order, [theirs.fileno(), *([passed.fileno()] if passed else [])])
        return WarmGuard(ours)

    def begin(self) -> None:
        """Start it before there is an order, if it was not started yet."""
        if self._control is None:
            self._start()

    def close(self) -> None:
        """End the warm process, not what it has started; the next order starts another."""
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


async def _read_line(connection: socket.socket) -> bytes:
    """Return the guard's report; what there is of it if the guard dies."""
    line = b""
    while not line.endswith(b"\n"):
        await anyio.wait_readable(connection)
        try:
            chunk = connection.recv(_REPORT_BYTES)
        except BlockingIOError:
            continue
        except ConnectionError:  # it died with our last words unread
            break
        if not chunk:
            break
        line += chunk
    return line
