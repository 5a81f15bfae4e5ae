from __future__ import annotations

import anyio
import pytest
from anyio.abc import TaskStatus

from actors.supervision import supervise

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


class Actor:
    """Crashes after given lifetimes, then stays."""

    def __init__(self, *lifetimes_s: float, crash_before_start: bool = False) -> None:
        self._lifetimes_s = list(lifetimes_s)
        self._crash_before_start = crash_before_start
        self.started_at: list[float] = []

    async def __call__(self, *, task_status: TaskStatus[None]) -> None:
        self.started_at.append(anyio.current_time())
        if self._crash_before_start:
            raise ValueError("no such queue")
        task_status.started()
        if not self._lifetimes_s:
            return
        await anyio.sleep(self._lifetimes_s.pop(0))
        raise ZeroDivisionError("bug")


async def test_an_actor_that_ends_is_not_started_again() -> None:
    actor = Actor()
    await supervise("a", actor)
    assert actor.started_at == [0]


async def test_an_actor_that_crashes_starts_again_after_pauses_that_grow() -> None:
    actor = Actor(0, 0, 0)
    await supervise("a", actor)
    assert actor.started_at == [pytest.approx(when) for when in (0, 0.5, 1.5, 3.5)]


async def test_an_actor_that_keeps_crashing_is_given_up_with_its_last_error() -> None:
    actor = Actor(*[1.0] * 9)
    with pytest.raises(ZeroDivisionError, match="bug"):
        await supervise("a", actor, restarts=2)
    assert len(actor.started_at) == 3


async def test_crashes_long_ago_do_not_count() -> None:
    actor = Actor(*[100.0] * 9)
    await supervise("a", actor, restarts=1, within_s=60)
    assert len(actor.started_at) == 10


async def test_an_actor_that_never_started_is_not_tried_again() -> None:
    actor = Actor(crash_before_start=True)
    with pytest.raises(ValueError, match="no such queue"):
        await supervise("a", actor)
    assert len(actor.started_at) == 1


async def test_the_first_start_is_told_once_and_cancelling_is_no_crash() -> None:
    actor = Actor(1, 1000)
    async with anyio.create_task_group() as tasks:
        await tasks.start(supervise, "a", actor)
        await anyio.sleep(10)
        tasks.cancel_scope.cancel()
    assert len(actor.started_at) == 2
