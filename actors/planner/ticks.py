"""The clock of a run that has a limit of time: the only way in which time enters the search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import anyio

from actors.planner.core.state import SearchState
from messages.events import ClockTicked

_LONGEST_S = 60.0
"""What a run that is killed may at most forget of its time."""
_SHORTEST_S = 1.0
_PART = 20
"""A tick takes at most this part of what is left of the time, so that a run ends in time without a tick each second."""


async def ticks(now: Callable[[], SearchState]) -> AsyncIterator[ClockTicked]:
    """Yield how long the run has been going, over all its sessions and without its pauses.

    Args:
        now: returns the state as it is; its budget limits the time.
    """
    before_s, began, rested_s = now().elapsed_s, anyio.current_time(), 0.0
    while True:
        elapsed_s = before_s + anyio.current_time() - began - rested_s
        pause_s = pause_between(elapsed_s, now().settings.budget.wall_clock_s)
        await anyio.sleep(pause_s)
        if now().paused:
            rested_s += pause_s
        else:
            yield ClockTicked(elapsed_s=round(before_s + anyio.current_time() - began - rested_s, 3))


def pause_between(elapsed_s: float, limit_s: float | None) -> float:
    """Return how long to wait for the next tick."""
    left_s = (limit_s or 0.0) - elapsed_s
    return min(_LONGEST_S, max(_SHORTEST_S, left_s / _PART))
