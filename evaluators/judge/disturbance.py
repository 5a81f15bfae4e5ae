"""What kept a side from running during a call, as the kernel tells it. Times are never evidence.

Two things are looked at: how long a thread of the side stood in a run queue (`/proc/PID/task/*/schedstat`), because
somebody else had its core; and how much of its cores the hypervisor gave to others (`steal` in `/proc/stat`). A side
with more threads at work than cores has them waiting for each other: then the queue says nothing, and is not asked.
Pressure (`/proc/pressure/cpu`) would not do: it counts the idle loops and low-priority checks that wait for us.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_SHARE = 0.1
"""Of a call's time: less is no matter."""
_LEAST_NS = 200_000
"""Nor is less than this: starting and stopping a side has its threads wait for the judge, 0.13 to 0.18 ms on the two
cores where it was measured."""
_AT_WORK = 0.05
"""Of the time that all threads together computed: one that computed for less is not one of those that need a core. On
a crowded host every thread waits, and those that hardly compute must not make the side look too wide for its cores."""
_STEAL = 7
_NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


class Watch:
    """Looks at one side during its calls."""

    def __init__(self, pid: int, cores: Collection[int]) -> None:
        """Watch a process.

        Args:
            pid: the side's.
            cores: those that it may use.
        """
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
        allowed_ns = max(_LEAST_NS, int(_SHARE * elapsed_ns))
        spent = [
            (ran - self._before.get(thread, (0, 0))[0], waited - self._before.get(thread, (0, 0))[1])
            for thread, (ran, waited) in self._account().items()
        ]
        computed_ns = sum(ran for ran, _ in spent)
        at_work = sum(ran > _AT_WORK * computed_ns for ran, _ in spent)
        waited_ns = max((waited for _, waited in spent), default=0)
        if at_work <= len(self._cores) and waited_ns > allowed_ns:
            return f"it waited {waited_ns / 1000:.0f} us for a core that another process had"
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
