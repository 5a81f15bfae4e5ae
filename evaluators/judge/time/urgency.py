"""Real-time priority around one timed call, and nowhere else.

A thread at real-time priority must not wait for others in the kernel: `wait4` on a child spins until a process that
reads that child's /proc entry has run, which never happens on the same core. So the judge's thread and its side get
that priority just before the request of a timed call and lose it once the side has stopped, or after `URGENT_S`. In
between the judge polls, signals, reads outputs, and queries the side's state without reaping it.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Sequence
from types import TracebackType

from evaluators.judge.time import heartbeat
from evaluators.process.watchdog import demote

_JUDGE_PRIORITY = 2
_SIDE_PRIORITY = 1


def is_permitted() -> bool:
    """Return True if this process may use real-time priority."""
    try:
        _hurry(threading.get_native_id(), _JUDGE_PRIORITY)
    except PermissionError:
        return False
    finally:
        demote(threading.get_native_id())
    return True


class Urgency:
    """Context manager that gives a stopped side's threads real-time priority, and this thread a higher one.

    Threads that a side starts meanwhile begin at normal priority (SCHED_RESET_ON_FORK), so the threads to demote are
    known without reading /proc, and a thread that ends was never above others.
    """

    def __init__(self, threads: Sequence[int]) -> None:
        self._threads = threads
        self.is_on = False
        """True while they have that priority."""
        self._collects = gc.isenabled()

    def __enter__(self) -> Urgency:
        if self._threads:
            heartbeat.name_urgent(self._threads)
            self.is_on = True
            gc.disable()  # a finalizer may open files and reap children
            try:
                for thread in self._threads:
                    _hurry(thread, _SIDE_PRIORITY)
                _hurry(threading.get_native_id(), _JUDGE_PRIORITY)
            except BaseException:
                self.end()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Return to normal priority: the side first, since this thread must not be below it while it runs."""
        if not self.is_on:
            return
        for thread in (*self._threads, threading.get_native_id()):
            demote(thread)
        self.is_on = False
        heartbeat.name_urgent(())
        if self._collects:
            gc.enable()


def _hurry(thread: int, priority: int) -> None:
    """Give one thread a real-time priority; do nothing if it has ended.

    Niceness does not suffice: a normal process keeps its core until the next tick, some milliseconds.
    """
    try:
        os.sched_setscheduler(thread, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except ProcessLookupError:
        return
