"""Keeps the cores from falling asleep while something is timed.

A core that has nothing to do sleeps, in a virtual machine outside of it, and the first thread that wakes on it pays for
that: a call that comes after a pause takes up to twice as long as the same call in a loop, more so the more often it
synchronises its threads. Processes of the lowest priority, one per core, stand in for the loop; they cede their core to
whoever wants it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from types import TracebackType

from evaluators.guard import die_with_parent, give_way

_MAX_CORES = 64


class AwakeCores:
    """One idle loop per core of this process, stopped except inside the context."""

    def __init__(self, *, close_fds: Sequence[int]) -> None:
        """Fork them. Must happen before torch has used OpenMP in this process.

        Args:
            close_fds: descriptors of the judge that they must not hold open.
        """
        self.pids = frozenset(_fork(core, close_fds) for core in sorted(os.sched_getaffinity(0))[:_MAX_CORES])

    def __enter__(self) -> AwakeCores:
        self._signal(signal.SIGCONT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _fork(core: int, close_fds: Sequence[int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        for fd in close_fds:
            os.close(fd)
        os.setpgid(0, 0)
        give_way()
        os.sched_setaffinity(0, {core})
        os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            # Whoever else gives way, a compiler or a check, goes first.
            os.sched_yield()
    finally:
        os._exit(1)
