"""Waiting: a broadcast event, and a line of tasks that are served in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint


class Changes:
    """Broadcast event: `note()` wakes all current waiters."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        """Wake all waiters."""
        changed, self._event = self._event, anyio.Event()
        changed.set()

    async def next(self) -> None:
        """Wait for the next change."""
        await self._event.wait()


T = TypeVar("T")


class Line:
    """Waiting tasks, served in order of arrival. Only the first one checks for items, so a change wakes one task."""

    def __init__(self) -> None:
        self._turns: deque[_Turn] = deque()

    def call(self) -> None:
        """Wake the first task: an item has arrived, or a due time has changed."""
        if self._turns:
            self._turns[0].called.set()

    def join(self, turn: _Turn) -> None:
        """Add a task at the end."""
        self._turns.append(turn)

    def leave(self, turn: _Turn) -> None:
        """Remove a task and wake the next one."""
        self._turns.remove(turn)
        self.call()

    def is_first(self, turn: _Turn) -> bool:
        """Return True for the first task."""
        return self._turns[0] is turn


class Place(Generic[T]):
    """A source of items."""

    def __init__(self, line: Line, look: Callable[[], T | None], next_due: Callable[[], float | None]) -> None:
        """`look` takes an item or returns None; `next_due` tells when one may appear without a `call` (None: never)."""
        self.line = line
        self.look = look
        self.next_due = next_due


async def first_of(places: Sequence[Place[T]]) -> T:
    """Wait for the first item from any place; earlier places take precedence.

    Nothing is awaited between taking an item and returning it, so a cancelled wait takes nothing.
    """
    await checkpoint()
    turn = _Turn()
    for place in places:
        place.line.join(turn)
    try:
        while True:
            dues = [math.inf]
            for place in places:
                if not place.line.is_first(turn):
                    continue
                found = place.look()
                if found is not None:
                    return found
                due = place.next_due()
                dues += [] if due is None else [due]
            await turn.wait(min(dues))
    finally:
        for place in places:
            place.line.leave(turn)


class _Turn:
    def __init__(self) -> None:
        self.called = anyio.Event()

    async def wait(self, due: float) -> None:
        with anyio.CancelScope(deadline=due):
            await self.called.wait()
        self.called = anyio.Event()
