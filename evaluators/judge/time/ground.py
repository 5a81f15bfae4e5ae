"""Where both sides of a timing run, and how each timed call finds that place: its cores, with cold caches."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.reference.baseline import BaselineSide
from evaluators.judge.time.control import stat_fields
from evaluators.judge.time.cores import pin, quietest_cores, thread_elsewhere
from evaluators.judge.time.stopwatch import CacheSweeper
from evaluators.judge.time.urgency import is_permitted
from messages.verdicts import Rejected

_LONGEST_SPIN_S = 0.03
_LOOK_EVERY_S = 0.0005


class Ground:
    """The cores of a timing judge's sides."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.cores = frozenset(os.sched_getaffinity(0))
        """Where both sides run."""
        self._goes_before = False
        """True if sides take a core from other processes in timed calls."""
        self._sweeper = CacheSweeper()

    @property
    def swept(self) -> str:
        """Say what is read before every timed call, and what that leaves in the caches."""
        sweeper = self._sweeper
        read = f"{sweeper.size_bytes >> 20} MiB are read {sweeper.passes} times before every timed call"
        if sweeper.size_bytes > sweeper.cache_bytes:
            return f"{read}: caches begin cold"
        return f"{read}, of {sweeper.cache_bytes >> 20} MiB of last-level caches: what lies in the rest may be warm"

    @contextmanager
    def placed(self, baselines: Sequence[BaselineSide]) -> Iterator[None]:
        """Bind the references to the quietest cores and the judge to the others, if the task says how many."""
        everywhere = frozenset(os.sched_getaffinity(0))
        if not self.threads:
            yield
            return
        self.cores = quietest_cores(self.threads, among=everywhere)
        for baseline in baselines:
            pin(baseline.pid, self.cores)
        pin(os.getpid(), everywhere - self.cores or everywhere)
        try:
            yield
        finally:
            pin(os.getpid(), everywhere)

    @contextmanager
    def hurried(self, baselines: Sequence[BaselineSide]) -> Iterator[bool]:
        """Let sides and judge go before other processes in timed calls. Yields whether that is permitted.

        Of the judge its own thread alone: those of OpenMP, with which it sweeps and compares, must not go before sides.
        """
        self._goes_before = is_permitted()
        for baseline in baselines:
            baseline.hurry(first=self._goes_before)
        try:
            yield self._goes_before
        finally:
            self._goes_before = False
            for baseline in baselines:
                baseline.hurry(first=False)

    def join(self, side: CandidateSide) -> None:
        """Have a candidate run where the reference does, and as early."""
        if self.threads:
            pin(side.pid, self.cores)
        side.hurry(first=self._goes_before)

    def refuse_elsewhere(self, side: CandidateSide) -> None:
        """See that all threads of a candidate are bound to its cores, if the task says how many."""
        if self.threads and (refusal := thread_elsewhere(side.pid, self.cores)):
            raise CandidateFailedError(Rejected(reason=refusal, rule="threads"))

    def sweep(self) -> None:
        """Sweep the last-level cache, and the own caches of the core on which the sides run."""
        if not self.threads:
            self._sweeper.sweep()
        else:
            own = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self.cores)
            self._sweeper.sweep()
            os.sched_setaffinity(0, own)
        if not self._goes_before:
            _wait_for_own_threads()


def _wait_for_own_threads() -> None:
    """Wait until no other thread of this process has or wants a core, but not for long.

    OpenMP's threads spin once they have nothing to do, for 7 ms where it was measured, and would for so long keep a
    core from a side with threads on all cores.
    """
    until = time.monotonic() + _LONGEST_SPIN_S
    while _others_run() and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)


def _others_run() -> bool:
    own = str(threading.get_native_id())
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            if thread.name != own and stat_fields(thread / "stat")[0] == "R":
                return True
    return False
