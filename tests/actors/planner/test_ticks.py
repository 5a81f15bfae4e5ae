"""Time enters the search by ticks: few of them, and enough for a run to end in time."""

from __future__ import annotations

from itertools import pairwise

import anyio
import pytest

from actors.planner.actor import pause_between, ticks
from actors.planner.core.state import SearchState
from messages.settings import Budget, SearchSettings

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


async def told(limit_s: float, *, elapsed_s: float = 0.0) -> list[float]:
    """Return all ticks up to a limit."""
    state = SearchState(settings=SearchSettings(budget=Budget(wall_clock_s=limit_s)), elapsed_s=elapsed_s)
    found = []
    async for ticked in ticks(lambda: state):
        found.append(ticked.elapsed_s)
        if ticked.elapsed_s >= limit_s:
            return found
    return found


async def test_a_day_takes_one_tick_a_minute_and_ends_within_a_second() -> None:
    found = await told(86_400.0)
    assert len(found) < 86_400 / 60 + 100
    assert found[-1] < 86_401
    assert max(after - before for before, after in pairwise(found)) <= 60.0


async def test_a_short_run_ends_within_a_second_too() -> None:
    assert (await told(12.0))[-1] < 13.1
    assert (await told(0.5))[0] == 1.0


async def test_time_of_earlier_sessions_counts() -> None:
    found = await told(100.0, elapsed_s=90.0)
    assert found[0] > 90.0
    assert anyio.current_time() < 12.0


def test_a_limit_that_is_passed_or_none_makes_no_ticks_without_end() -> None:
    assert pause_between(200.0, 100.0) == pause_between(0.0, None) == 1.0
