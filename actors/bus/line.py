"""Waiting in line: tasks that wait for the same kind of thing are served in the order in which they came."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio.lowlevel import checkpoint

T = TypeVar("T")


class Line:
    """Tasks that wait, first come, first served. Only the first one looks, so a change wakes one task and not all."""

    def __init__(self) -> None:
        self._turns: deque[_Turn] = deque()

    async def wait_for(self, look: Callable[[], T | None], next_due: Callable[[], float | None]) -> T:
        """Wait until `look` finds something.

        Nothing is awaited between finding and returning: a cancelled wait has taken nothing.

        Args:
            look: finds the thing and takes it, or says none.
            next_due: when (`anyio.current_time`) something may turn up without a `call`; None if it cannot.
        """
        await checkpoint()
        turn = _Turn()
        self._turns.append(turn)
        try:
            while True:
                due = None
                if self._turns[0] is turn:
                    found = look()
                    if found is not None:
                        return found
                    due = next_due()
                await turn.wait(due)
        finally:
            self._turns.remove(turn)
            self.call()

    def call(self) -> None:
        """Have the first one look: something is there, or becomes due at another time than before."""
        if self._turns:
            self._turns[0].called.set()


class _Turn:
    def __init__(self) -> None:
        self.called = anyio.Event()

    async def wait(self, due: float | None) -> None:
        with anyio.CancelScope(deadline=math.inf if due is None else due):
            await self.called.wait()
        self.called = anyio.Event()
