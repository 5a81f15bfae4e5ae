"""Starts a search in a new process session that outlives its terminal and writes to a file.

The command forks before anything is started, and waits until the run has begun: what the new process says until then,
and its exit code if it fails, are the command's own. Ctrl-C ends the start. After that nothing ties the two together:
no terminal, no pipe, no parent that has to wait for a child.
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
"""How often what a start says is passed on."""


class Detached(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on by itself."""

    run: str
    path: str
    """Its folder."""
    output: str
    """File that has what it prints."""
    pid: int
    """Of the process that leads it: SIGTERM stops it as Ctrl-C would."""


class Departure:
    """The new process's side: says once that the run has begun."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self.has_left = False

    def leave(self, folder: RunFolder) -> None:
        """Have all further output go to the run's folder, and let the command return. Again: nothing.

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
    """Go on in a new process. Returns in both: a `Departure` in the new one.

    In the old one it returns when the run has begun (`Detached`), or has not: the new process's exit code.
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
    """Leave the terminal: no input, output to files that the old process reads, no signals of its keys or its end."""
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
        """Write what is new."""
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
    """Return with what a process ended, once all that it said is passed on; as shells do, 128 + N for a signal."""
    _, status = os.waitpid(child, 0)
    for relay in relays:
        relay.pass_on()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
