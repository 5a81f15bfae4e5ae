"""What kept a side from running during a call, as the kernel tells it. Times are never evidence.

Two things are looked at: how long a thread of the side stood in a run queue (`/proc/PID/task/*/schedstat`), because
somebody else had its core; and how much of its cores the hypervisor gave to others (`steal` in `/proc/stat`). A side
with more threads at work than cores has them waiting for each other: then the queue says nothing, and is not asked.
Pressure (`/proc/pressure/cpu`) would not do: it counts the idle loops and low-priority checks that wait for us.

Starting and stopping a side is the judge's own work, for which its threads wait as well. How long that takes now is
learned from the calls of the reference, whose process is the judge's: where the host runs half as fast as an hour
before, so does the judge.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from pathlib import Path
from statistics import median

_SHARE = 0.1
"""Of a call's time: less is no matter."""
WAITING_NS = 200_000
"""Nor is less than this: 0.13 to 0.18 ms in which threads wait for the judge, on two cores at their usual speed."""
STOPPING_NS = 200_000 + 5_000 * (os.cpu_count() or 1)
"""Within this a side has stopped that only computes: 0.07 to 0.18 ms there, with one thread or several."""
LOOKING_NS = 100_000
"""Within this a look at the outputs is over: 0.01 to 0.04 ms there."""
_RECENT = 15
"""Calls of the reference that are asked."""
_MARGIN, _MOST = 1.5, 2.5
"""Times what they took, but no more than so many times what it usually is."""
_AT_WORK = 0.05
"""Of the time that all threads together computed: one that computed for less is not one of those that need a core. On
a crowded host every thread waits, and those that hardly compute must not make the side look too wide for its cores."""
_STEAL = 7
_NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


class Usual:
    """What the judge's own work on a side takes at most, as the host runs at present."""

    def __init__(self, usual_ns: int) -> None:
        """Begin with what it takes on a host at its usual speed."""
        self._usual_ns = usual_ns
        self._recent: deque[int] = deque(maxlen=_RECENT)

    def add(self, taken_ns: int) -> None:
        """Learn from a call of the reference."""
        self._recent.append(taken_ns)

    @property
    def most_ns(self) -> int:
        """Return what is no disturbance."""
        recent_ns = _MARGIN * median(self._recent) if self._recent else 0.0
        return round(min(max(recent_ns, self._usual_ns), _MOST * self._usual_ns))


class Watch:
    """Looks at one side during its calls."""

    def __init__(self, pid: int, cores: Collection[int], waiting: Usual) -> None:
        """Watch a process.

        Args:
            pid: the side's.
            cores: those that it may use.
            waiting: for how long its threads wait for the judge.
        """
        self._waiting = waiting
        self.waited_ns = 0
        """For how long one of its threads stood in a run queue in the last call."""
        self._threads = Path(f"/proc/{pid}/task")
        self._cores = frozenset(cores)
        self._before: dict[str, tuple[int, int]] = {}
        self._stolen = 0

    def begin(self) -> None:
        """Note how things stand; the side is stopped."""
        self._before = self._account()
        self._stolen = self._steals()

    def end(self, elapsed_ns: int) -> str:
        """Say what kept the side from running since `begin`; empty: nothing that matters.

        Args:
            elapsed_ns: how long the call took.
        """
        allowed_ns = max(self._waiting.most_ns, int(_SHARE * elapsed_ns))
        spent = [
            (ran - self._before.get(thread, (0, 0))[0], waited - self._before.get(thread, (0, 0))[1])
            for thread, (ran, waited) in self._account().items()
        ]
        computed_ns = sum(ran for ran, _ in spent)
        at_work = sum(ran > _AT_WORK * computed_ns for ran, _ in spent)
        self.waited_ns = max((waited for _, waited in spent), default=0)
        if at_work <= len(self._cores) and self.waited_ns > allowed_ns:
            return f"it waited {self.waited_ns / 1000:.0f} us for a core that another process had"
        stolen_ns = (self._steals() - self._stolen) * _NS_PER_TICK
        if stolen_ns > max(allowed_ns, int(_SHARE * elapsed_ns * len(self._cores))):
            return f"the hypervisor ran something else for {stolen_ns / 1000:.0f} us"
        return ""

    def _account(self) -> dict[str, tuple[int, int]]:
        """Return for how long each thread has run and stood in a run queue, in ns; empty where the kernel is silent."""
        account: dict[str, tuple[int, int]] = {}
        try:
            for thread in self._threads.iterdir():
                ran, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
                account[thread.name] = (int(ran), int(waited))
        except (OSError, ValueError):
            return {}
        return account

    def _steals(self) -> int:
        """Return the stolen ticks of the side's cores so far."""
        stolen = 0
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(" ")
            if name.startswith("cpu") and name != "cpu" and int(name[3:]) in self._cores:
                fields = rest.split()
                stolen += int(fields[_STEAL]) if len(fields) > _STEAL else 0
        return stolen
