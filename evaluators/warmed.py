"""Runs builds in processes forked from a warm one (`warm.py`): the same guard as `guarded.py`, without the imports.

- `WarmProcess(module).run(job: GuardJob, *, cwd: Path, environment: dict[str, str]) -> GuardReport`
- `WarmProcess(module).close()`
"""

from __future__ import annotations

import socket
import subprocess
import sys
import weakref
from pathlib import Path

import anyio
import msgspec

import evaluators
from evaluators.guarded import GuardJob, GuardReport, plain_environment
from messages.errors import EvaluatorError

_ROOT = str(Path(evaluators.__file__).parents[1])
_STOP_S = 10.0
_REPORT_BYTES = 1 << 16
_report = msgspec.json.Decoder(GuardReport)


class WarmOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One build, as the warm process is told it."""

    folder: str
    environment: dict[str, str]
    job: GuardJob


class WarmProcess:
    """Starts the warm process with the first build, and again if it has ended. It ends with this object."""

    def __init__(self, module: str) -> None:
        """Take note of the module; see `warm.py`."""
        self._module = module
        self._control: socket.socket | None = None
        self._end: weakref.finalize[..., WarmProcess] | None = None

    async def run(self, job: GuardJob, *, cwd: Path, environment: dict[str, str]) -> GuardReport:
        """Run a build to its end or its limit. Cancelled: it and all its descendants are killed first.

        Raises:
            EvaluatorError: the warm process cannot be started, or the guard said nothing.
        """
        order = msgspec.json.encode(WarmOrder(folder=str(cwd), environment=environment, job=job))
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            with theirs:
                self._send(order, theirs)
            try:
                line = await _read_line(ours)
            finally:
                await _end_guard(ours)
        if not line:
            self.close()
            raise EvaluatorError(f"the warm process for builds ended: can {self._module} be imported here?")
        return _report.decode(line)

    def close(self) -> None:
        """End the warm process; the next build starts another."""
        if self._end is not None:
            self._end()
        self._control = self._end = None

    def _send(self, order: bytes, theirs: socket.socket) -> None:
        for is_last in (False, True):
            control = self._control or self._start()
            try:
                socket.send_fds(control, [order], [theirs.fileno()])
            except OSError as error:
                self.close()
                if is_last:
                    raise EvaluatorError(f"the warm process for builds does not answer: {error}") from error
            else:
                return

    def _start(self) -> socket.socket:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: S603 - our own code
                    [sys.executable, "-P", "-m", "evaluators.warm", self._module, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=plain_environment(PYTHONPATH=_ROOT, PYTHONDONTWRITEBYTECODE="1"),
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


async def _end_guard(connection: socket.socket) -> None:
    """Have the guard kill what is left, and wait until it has ended, but not for ever."""
    with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_S):
        try:
            connection.shutdown(socket.SHUT_WR)
            await _read_line(connection)
        except OSError:
            return
