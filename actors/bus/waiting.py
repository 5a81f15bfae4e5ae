"""Waiting: a broadcast event, and a line of tasks that are served in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint


class Changes:
    """Wakes all who wait, each time. Who comes later waits for the next time: look first, then wait."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def note(self) -> None:
        """Say that it has changed."""
        changed, self._event = self._event, anyio.Event()
        changed.set()

    async def next(self) -> None:
        """Wait for the next change."""
        await self._event.wait()


T = TypeVar("T")


class Line:
    """Tasks that wait, first come, first served. Only the first one looks, so a change wakes one task and not all."""

    def __init__(self) -> None:
        self._turns: deque[_Turn] = deque()

    def call(self) -> None:
        """Have the first one look: something is there, or becomes due at another time than before."""
        if self._turns:
            self._turns[0].called.set()

    def join(self, turn: _Turn) -> None:
        """Stand at the end."""
        self._turns.append(turn)

    def leave(self, turn: _Turn) -> None:
        """Go away, and let the next one look."""
        self._turns.remove(turn)
        self.call()

    def is_first(self, turn: _Turn) -> bool:
        """Say whose turn it is."""
        return self._turns[0] is turn


class Place(Generic[T]):
    """Where a kind of thing is to be had."""

    def __init__(self, line: Line, look: Callable[[], T | None], next_due: Callable[[], float | None]) -> None:
        """Say how.

        Args:
            line: who waits for it.
            look: finds a thing and takes it, or says none; may raise.
            next_due: when (`anyio.current_time`) something may turn up without a `call`; None if it cannot.
        """
        self.line = line
        self.look = look
        self.next_due = next_due


async def first_of(places: Sequence[Place[T]]) -> T:
    """Wait in all lines at once until a thing is found; where several have one, the first place gives its.

    Nothing is awaited between finding and returning: a cancelled wait has taken nothing.
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
