"""A runner's process, as the judge holds it: with its socket, its log and its folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from evaluators.folders import remove_tree
from evaluators.guard import kill
from evaluators.judge.launching import Launcher, RunnerError, RunnerSpec
from evaluators.judge.memory import Buffers
from evaluators.judge.runner_log import RunnerLog
from evaluators.judge.side import Line

_END_S = 20.0
"""Giving memory back takes its time, on a busy host more of it."""


class Own(NamedTuple):
    """What each process has of its own: part of a `RunnerSpec`."""

    nonce: int
    folder: str
    control_fd: int
    inputs_fd: int


class Runner:
    """One process. Whoever starts it owes it `close`."""

    def __init__(
        self, spec_of: Callable[[Own], RunnerSpec], launcher: Launcher, buffers: Buffers, *, stops: bool
    ) -> None:
        """Start it.

        Args:
            spec_of: returns all that it is told.
            launcher: starts it.
            buffers: whose inputs it may read.
            stops: whether it is stopped between its calls.

        Raises:
            RunnerError: it cannot be started.
        """
        # Inside the judge's own folder: whoever ends the judge removes this with it.
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
            self.line = Line(ours, self.process.pid, nonce, stops=stops)
            begun.pop_all()

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self.process.pid

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    @property
    def segfaulted(self) -> bool:
        """Whether it ended by an access to memory that it may not touch."""
        return self.process.returncode in {-signal.SIGSEGV, -signal.SIGBUS}

    def kill(self) -> None:
        """Demote all its threads and kill it, if it lives, and wait until it is gone.

        Raises:
            RunnerError: it would not die.
        """
        if not self.lives:
            return
        kill(self.pid)
        try:
            self.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired as error:
            raise RunnerError(f"a runner would not die: process {self.pid} was killed {_END_S:g} s ago") from error

    def close(self) -> None:
        """Kill it, and remove what is left of it; once more is nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self.kill()
        self.line.close()
        self.log.close()
        remove_tree(self._folder)


def say_end(code: int) -> str:
    """Say how a process ended: by itself, or negative, by a signal."""
    if code >= 0:
        return f"its process ended by itself with exit code {code}"
    name = signal.Signals(-code).name
    more = " (it ran out of memory, or something outside killed it)" if name == "SIGKILL" else ""
    return f"its process died of {name}{more}"
