"""The progress of this judge for its guard's watchdog; without a watchdog, nothing happens here.

There is one judge in a process, and all its work counts as progress, so this is the state of a module.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluators.process.watchdog import PULSE, Pulse

_pulse: Pulse | None = None


def begin() -> None:
    """Report to the watchdog from now on, if the guard of this process has a page for that."""
    global _pulse  # noqa: PLW0603 - see above
    _pulse = Pulse(str(Path.cwd())) if Path(PULSE).exists() else None


def beat(wait_s: float = 0.0) -> None:
    """Report progress, and how long the judge will wait now."""
    if _pulse is not None:
        _pulse.beat(wait_s)


def rest() -> None:
    """Report that nothing is being done until the next beat."""
    if _pulse is not None:
        _pulse.rest()


def name_urgent(threads: Sequence[int]) -> None:
    """Report the threads of a side that have real-time priority from now on."""
    if _pulse is not None:
        _pulse.name_urgent(threads)
