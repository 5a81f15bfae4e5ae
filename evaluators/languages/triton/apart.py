"""Compiles what is not told of, in processes of its own: whatever becomes of them, it is not missed."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

MOST_AT_ONCE = 16


def cores() -> int:
    """Return how many processes may compile at once."""
    return min(MOST_AT_ONCE, len(os.sched_getaffinity(0)))


class Apart:
    """Forks this process for each thing to be done, and lets some of them run at once."""

    def __init__(self, *, at_once: int, most: int, limit_s: float) -> None:
        """Begin to count.

        Args:
            at_once: processes.
            most: processes in all; what is asked for after them is left out.
            limit_s: for all of them together, from now on; what is not done then is left out.
        """
        self._at_once, self._left = at_once, most
        self._deadline = time.monotonic() + limit_s
        self._running: dict[int, int] = {}
        """Process ids by what becomes readable when they end."""

    def run(self, work: Callable[[], object]) -> None:
        """Have something done; waits while there are as many processes as may be."""
        while len(self._running) >= self._at_once and time.monotonic() < self._deadline:
            self._collect()
        if self._left == 0 or time.monotonic() >= self._deadline:
            return
        self._left -= 1
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        self._running[os.pidfd_open(pid)] = pid

    def wait(self) -> None:
        """Wait until all is done, or the time is over."""
        while self._running and time.monotonic() < self._deadline:
            self._collect()
        for pid in self._running.values():
            os.kill(pid, signal.SIGKILL)
        while self._running:
            self._end(next(iter(self._running)))

    def _collect(self) -> None:
        patience = max(0.0, self._deadline - time.monotonic())
        for ended in select.select([*self._running], [], [], patience)[0]:
            self._end(ended)

    def _end(self, ended: int) -> None:
        os.waitpid(self._running.pop(ended), 0)
        os.close(ended)
