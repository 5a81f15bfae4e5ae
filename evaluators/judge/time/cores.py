"""Cores of a measurement: choosing, pinning and keeping them awake. Linux only.

An idle core sleeps, and the first thread that wakes on it pays for that: a call after a pause takes up to twice as long
as the same call in a loop. Processes of the lowest priority, one per core, replace the loop; they yield their core to
any other process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from evaluators.process.guard import fork_child, give_way

_MAX_CORES = 64


class AwakeCores:
    """One idle loop per core of this process, stopped except inside the context."""

    def __init__(self, *, close_fds: Sequence[int]) -> None:
        """Fork them. Must happen before torch has used OpenMP in this process."""
        cores = sorted(os.sched_getaffinity(0))[:_MAX_CORES]
        self.pids = frozenset(fork_child(partial(_idle, core), close_fds=close_fds) for core in cores)

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


def _idle(core: int) -> NoReturn:
    give_way()
    os.sched_setaffinity(0, {core})
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        # Other processes of low priority, a compiler or a check, go first.
        os.sched_yield()


_WINDOW_S = 0.1
"""Ten ticks of the clock of busy time."""
_CPUCLOCK_SCHED = 2
_IDLE, _IOWAIT = 3, 4
_NEW_THREADS = 10
_MOST_NAMED = 4
_MORE_THAN_ITS_CORES = 1.1
_STOPPING_NS = 100_000
"""CPU time of a side around a call: receiving the request, being stopped."""


class CoresError(Exception):
    """There are fewer cores than requested."""


def quietest_cores(count: int, *, among: Collection[int]) -> frozenset[int]:
    """Measure for a tenth of a second and return the least busy cores. Blocks meanwhile.

    A core's sibling, which shares its units, counts as much as itself. Among equals the last are taken, since the first
    ones get the interrupts.
    """
    require_cores(count, among=among)
    before = _busy_ticks()
    time.sleep(_WINDOW_S)
    after = _busy_ticks()
    return choose(count, {core: after.get(core, 0) - before.get(core, 0) for core in among}, _siblings)


def require_cores(count: int, *, among: Collection[int] = ()) -> None:
    """Check that there are as many cores."""
    found = len(among or os.sched_getaffinity(0))
    if count > found:
        raise CoresError(f"{count} threads are asked for, but this host gives {found} cores")


def choose(count: int, busy: Mapping[int, int], siblings_of: Callable[[int], Collection[int]]) -> frozenset[int]:
    """Return the least busy cores, including their siblings' load."""

    def disturbance(core: int) -> tuple[int, int]:
        return (sum(busy.get(one, 0) for one in {core, *siblings_of(core)}), -core)

    return frozenset(sorted(busy, key=disturbance)[:count])


def pin(pid: int, cores: Collection[int]) -> bool:
    """Bind all threads of a process to cores; later threads inherit that. False if not permitted."""
    bound: set[str] = set()
    for _ in range(_NEW_THREADS):
        try:
            threads = {task.name for task in Path(f"/proc/{pid}/task").iterdir()} - bound
            for thread in threads:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread), cores)
        except OSError:
            return False
        if not threads:
            break
        bound |= threads
    return True


def thread_elsewhere(pid: int, cores: frozenset[int]) -> str:
    """Return a complaint if a thread of a process may run on other cores than these; else empty."""
    for thread in threads_of(pid):
        with contextlib.suppress(ProcessLookupError):
            if others := os.sched_getaffinity(thread) - cores:
                named = ", ".join(map(str, sorted(others)[:_MOST_NAMED]))
                return f"a thread of it may run on core {named}, and it is bound to {sorted(cores)}"
    return ""


def threads_of(pid: int) -> tuple[int, ...]:
    """Return the threads of a process; none if it is gone."""
    try:
        return tuple(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return ()


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process with all its threads; 0 if it is gone."""
    try:
        # The same formula as in clock_getcpuclockid(3).
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return 0


class CoreShare:
    """Checks that a process that is bound to some cores computes on no others during its calls.

    Needed if nothing keeps its threads from changing that while they run. The slack allows for a helper thread.
    """

    def __init__(self, pid: int, cores: int) -> None:
        self._pid = pid
        self._cores = cores
        self._before_ns = self._used_ns = self._allowed_ns = 0

    def begin(self) -> None:
        """Record the state before a call."""
        self._before_ns = cpu_ns(self._pid)

    def end(self, elapsed_ns: int) -> None:
        """Add the CPU time of a call."""
        self._used_ns += cpu_ns(self._pid) - self._before_ns
        self._allowed_ns += int(_MORE_THAN_ITS_CORES * self._cores * elapsed_ns) + _STOPPING_NS

    def excess(self) -> str:
        """Return a complaint if it used more CPU time than its cores could give; else empty."""
        if not self._cores or self._used_ns <= self._allowed_ns:
            return ""
        told = "the core" if self._cores == 1 else f"the {self._cores} cores"
        return (
            f"it used {self._used_ns / 1e6:.1f} ms of CPU time in its calls, more than {told} it is bound to can give"
        )


def _busy_ticks() -> dict[int, int]:
    busy: dict[int, int] = {}
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(" ")
        if name.startswith("cpu") and name != "cpu":
            ticks = [int(field) for field in rest.split()[:8]]
            busy[int(name[3:])] = sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]
    return busy


def _siblings(core: int) -> set[int]:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text(encoding="ascii")
    except OSError:
        return set()
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
