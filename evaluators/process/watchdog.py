"""The watchdog of a judge that times: ends a judge that makes no progress. Stdlib only; part of the guard.

The judge writes its progress to a page of shared memory (`Pulse`). A watchdog process, child of the guard, reads it
twice a second, at a higher real-time priority than the judge, so that no thread can keep it from its core. It demotes
before it kills: a thread that spins in the kernel at real-time priority ends only then.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Sequence

# ruff: noqa: PTH118 - the guard imports no pathlib


PULSE = "pulse"
"""The file with the page, in the judge's folder."""
STAGE_S = 300.0
"""Without progress for so long a judge hangs, whatever it does: as long as loading a task may take."""
URGENT_S = 2.0
"""For so long a judge and its side may run at real-time priority at a stretch."""
MOST_URGENT_S = 4.0
"""A judge that is at real-time priority for so long without progress hangs."""
WATCHDOG_PRIORITY = 4
_LOOK_S = 0.5
_PAGE_BYTES = 1 << 16
_BEATS, _DEADLINE, _STALLED, _COUNT, _THREADS = 0, 1, 2, 3, 4


class Pulse:
    """Progress of one judge, in memory that its guard maps as well."""

    def __init__(self, folder: str) -> None:
        """Map the page, made if it is not there."""
        file = os.open(os.path.join(folder, PULSE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, _PAGE_BYTES)
            self._page = memoryview(mmap.mmap(file, _PAGE_BYTES)).cast("Q")
        finally:
            os.close(file)

    def beat(self, wait_s: float = 0.0) -> None:
        """Say that something was done; the next beat follows within `STAGE_S` and what is waited for besides."""
        self._page[_DEADLINE] = time.monotonic_ns() + int((STAGE_S + wait_s) * 1e9)
        self._page[_BEATS] += 1

    def rest(self) -> None:
        """Say that nothing is being done, until the next beat."""
        self._page[_DEADLINE] = 0

    def name_urgent(self, threads: Sequence[int]) -> None:
        """Note the threads of a side that are at real-time priority now: no process must look for them in /proc."""
        named = list(threads)[: len(self._page) - _THREADS]
        for place, thread in enumerate(named, start=_THREADS):
            self._page[place] = thread
        self._page[_COUNT] = len(named)

    @property
    def urgent(self) -> list[int]:
        """Return the threads of a side that are at real-time priority."""
        return [self._page[_THREADS + place] for place in range(self._page[_COUNT])]

    @property
    def beats(self) -> int:
        """Return how many beats there were."""
        return self._page[_BEATS]

    @property
    def is_late(self) -> bool:
        """True if a beat is missing."""
        deadline = self._page[_DEADLINE]
        return 0 < deadline < time.monotonic_ns()

    def stall(self) -> None:
        """Say that the judge made no progress and is killed for that."""
        self._page[_STALLED] = 1

    @property
    def has_stalled(self) -> bool:
        """True if the judge was killed for making no progress."""
        return bool(self._page[_STALLED])


def watch(judge: int, pulse: Pulse) -> None:
    """Be the watchdog of a judge until it has ended, or was demoted and killed."""
    with contextlib.suppress(PermissionError):  # then the judge has no priority either
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(WATCHDOG_PRIORITY))
    _await_stall(judge, pulse)
    pulse.stall()
    for thread in (*pulse.urgent, judge):
        demote(thread)
    os.kill(judge, signal.SIGKILL)


def _await_stall(judge: int, pulse: Pulse) -> None:
    beats, since = pulse.beats, time.monotonic()
    while not pulse.is_late:
        time.sleep(_LOOK_S)
        if pulse.beats != beats or not is_urgent(judge):
            beats, since = pulse.beats, time.monotonic()
        elif time.monotonic() - since > MOST_URGENT_S:
            return


def is_urgent(thread: int) -> bool:
    """Return True if a thread is at real-time priority.

    Raises:
        ProcessLookupError: it has ended.
    """
    policy = os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK
    return policy in (os.SCHED_FIFO, os.SCHED_RR)


def demote(thread: int) -> None:
    """Give a thread the normal scheduling class; nothing if it is gone, or not ours."""
    for policy in (os.SCHED_OTHER, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK):
        try:
            os.sched_setscheduler(thread, policy, os.sched_param(0))
        except PermissionError:  # only a privileged process may take that flag away
            continue
        except ProcessLookupError:
            return
        return
