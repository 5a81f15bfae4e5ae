"""The progress of this judge, as its guard's watchdog sees it; without a watchdog, nothing happens here.

There is one judge in a process, and all that it does is its progress: so this is the state of a module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluators.process.watchdog import PULSE, Pulse

_pulse: Pulse | None = None


def begin() -> None:
    """Tell the watchdog from now on, if the guard of this process has left a page for that."""
    global _pulse  # noqa: PLW0603 - see above
    _pulse = Pulse(str(Path.cwd())) if Path(PULSE).exists() else None


def beat(wait_s: float = 0.0) -> None:
    """Say that something was done, and how long something will be waited for now."""
    if _pulse is not None:
        _pulse.beat(wait_s)


def rest() -> None:
    """Say that nothing is being done until the next beat."""
    if _pulse is not None:
        _pulse.rest()


def name_urgent(threads: Sequence[int]) -> None:
    """Say which threads of a side are at real-time priority from now on."""
    if _pulse is not None:
        _pulse.name_urgent(threads)
