"""Starts a search in a new process session that outlives its terminal and writes to a file.

The command forks before anything is started, and waits until the run has begun. Until then it passes on the new
process's output, and returns its exit code if the start fails. Ctrl-C cancels the start. Afterwards the two share no
terminal, no pipe and no parent that has to wait for a child.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import tempfile
from typing import BinaryIO, TextIO

import msgspec

from ksearch_async.runs.folder import RunFolder
from messages.base import BoundaryError

_LOOK_S = 0.1
"""Seconds between looks for new output of a start."""


class Detached(msgspec.Struct, frozen=True, kw_only=True):
    """A run that continues in a process of its own."""

    run: str
    path: str
    """Path of its folder."""
    output: str
    """Path of the file with its output."""
    pid: int
    """Id of the process that leads it. SIGTERM stops it, as Ctrl-C does in a terminal."""


class Departure:
    """The new process's side: reports once that the run has begun."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self.has_left = False

    def leave(self, folder: RunFolder) -> None:
        """Send all further output to the run's folder, and let the command return. A second call does nothing.

        Raises:
            messages.base.BoundaryError: the folder cannot be written.
        """
        if self.has_left:
            return
        path = folder.path / "output.log"
        try:
            with path.open("ab") as output:
                _point(output.fileno(), sys.stdout, sys.stderr)
        except OSError as error:
            raise BoundaryError(f"cannot write {str(path)!r}: {error.strerror}") from error
        self.has_left = True
        left = Detached(run=folder.run_id, path=str(folder.path), output=str(path), pid=os.getpid())
        try:
            os.write(self._parent, msgspec.json.encode(left))
        except BrokenPipeError:
            return  # the terminal is gone already, and this was for when it is
        finally:
            os.close(self._parent)


def depart() -> Departure | Detached | int:
    """Continue in a new process. Returns in both: in the new one a `Departure`.

    In the old one it returns `Detached` when the run has begun, or the new process's exit code if the start failed.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ours, theirs = os.pipe()
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as noted:
        child = os.fork()
        if child == 0:
            os.close(ours)
            _settle(said, noted)
            return Departure(theirs)
        os.close(theirs)
        relays = (_Relay(said, sys.stdout), _Relay(noted, sys.stderr))
        try:
            return _begun(ours, relays) or _exit_code(child, relays)
        except KeyboardInterrupt:
            os.kill(child, signal.SIGTERM)
            _exit_code(child, relays)
            raise
        finally:
            os.close(ours)


def _settle(said: BinaryIO, noted: BinaryIO) -> None:
    """Detach from the terminal: close stdin, redirect output to files that the parent reads, ignore its signals."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - of a file descriptor's life
        os.dup2(nothing.fileno(), 0)
    _point(said.fileno(), sys.stdout)
    _point(noted.fileno(), sys.stderr)


def _point(fd: int, *streams: TextIO) -> None:
    for stream in streams:
        stream.flush()
        os.dup2(fd, stream.fileno())


class _Relay:
    def __init__(self, file: BinaryIO, stream: TextIO) -> None:
        self._file = file
        self._stream = stream
        self._at = 0

    def pass_on(self) -> None:
        """Write the new output."""
        while block := os.pread(self._file.fileno(), 1 << 16, self._at):
            self._at += len(block)
            self._stream.buffer.write(block)
            self._stream.flush()


def _begun(fd: int, relays: tuple[_Relay, ...]) -> Detached | None:
    while not select.select([fd], [], [], _LOOK_S)[0]:
        for relay in relays:
            relay.pass_on()
    said = os.read(fd, 1 << 16)
    return msgspec.json.decode(said, type=Detached) if said else None


def _exit_code(child: int, relays: tuple[_Relay, ...]) -> int:
    """Return a process's exit code once all its output is passed on; 128 + N for signal N, as shells do."""
    _, status = os.waitpid(child, 0)
    for relay in relays:
        relay.pass_on()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
