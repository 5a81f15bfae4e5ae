"""Whether a process that is late was kept from a core: what gives way to others may wait for long on a busy host.

It is looked at now and then. A thread that wanted a core in most of these moments, while the process was given little
CPU time, stood in line for it. What slept, and wants a core only when it is looked at, would have to know when.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from pathlib import Path

_LOOKS = 16
"""How often, in the time of one limit."""
_SHARE = 0.5
"""Of the looks, and of the time: wanted a core in more, was given one for less."""
_RUNNABLE = "R"


class Starving:
    """Looks at one process."""

    def __init__(self, pid: int) -> None:
        """Begin."""
        self._pid = pid
        self._used_s = cpu_s(pid)
        self._wanting: Counter[str] = Counter()
        self._chance = random.SystemRandom()

    def pauses_s(self, over_s: float) -> list[float]:
        """Return for how long to wait before each look of the next `over_s`."""
        shares = [self._chance.uniform(0.5, 1.5) for _ in range(_LOOKS)]
        return [over_s * share / sum(shares) for share in shares]

    def look(self) -> None:
        """See which threads want a core, whether they have one or not."""
        with contextlib.suppress(OSError):  # it is gone, or one of its threads
            for thread in Path(f"/proc/{self._pid}/task").iterdir():
                self._wanting[thread.name] += stat_fields(thread / "stat")[0] == _RUNNABLE

    def is_starved(self, over_s: float) -> bool:
        """Say whether it wanted a core during the last `over_s` and was given little of it; then begin anew.

        CPU time counts from the very beginning: who was given enough by and by is not waited for again.
        """
        wanted = max(self._wanting.values(), default=0) > _SHARE * _LOOKS
        self._wanting.clear()
        return wanted and cpu_s(self._pid) - self._used_s < _SHARE * over_s


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 if it is gone."""
    try:
        fields = stat_fields(Path(f"/proc/{pid}/stat"))
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stat_fields(path: Path) -> list[str]:
    """Return the fields behind the command's name, which stands in parentheses and may hold anything."""
    return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
