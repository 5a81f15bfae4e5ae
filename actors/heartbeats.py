"""Heartbeats for the jobs in a worker's hands: one task for all of them, for a task each costs as much as all the rest.

Each job's first beat comes one interval after it was taken; one that ends sooner costs an entry in a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import structlog

from actors.bus.base import CancelledRunError, Delivery

log = structlog.get_logger(__name__)


class Heartbeats:
    """Keeps jobs ours while they are being done."""

    def __init__(self, interval_s: float, beat: Callable[[Delivery], Awaitable[None]]) -> None:
        """Say how.

        Args:
            interval_s: between two beats of a job.
            beat: tells the bus of one job; raises `CancelledRunError` if nobody wants it any more, and nothing else.
        """
        self._interval_s = interval_s
        self._beat = beat
        self._kept: deque[_Kept] = deque()
        """In the order of their next beats: all intervals are the same. Ended ones stay until their beat is due."""
        self._begun = anyio.Event()

    @contextmanager
    def keeping(self, delivery: Delivery, attempt: anyio.CancelScope) -> Iterator[None]:
        """Keep a job for as long as the block; cancel `attempt` if nobody wants it any more."""
        kept = _Kept(delivery, attempt, anyio.current_time() + self._interval_s)
        self._kept.append(kept)
        self._begun.set()
        try:
            yield
        finally:
            kept.is_over = True

    async def run(self) -> None:
        """Beat until cancelled."""
        async with anyio.create_task_group() as beats:
            while True:
                while self._kept:
                    await anyio.sleep_until(self._kept[0].due)
                    kept = self._kept.popleft()
                    if not kept.is_over:
                        beats.start_soon(self._keep, kept)
                self._begun = anyio.Event()
                await self._begun.wait()

    async def _keep(self, kept: _Kept) -> None:
        try:
            await self._beat(kept.delivery)
        except CancelledRunError as error:
            if not kept.is_over:
                log.info("job dropped", job=kept.delivery.msg_id, error=str(error))
                kept.attempt.cancel()
            return
        if not kept.is_over:
            kept.due = anyio.current_time() + self._interval_s
            self._kept.append(kept)
            self._begun.set()


class _Kept:
    def __init__(self, delivery: Delivery, attempt: anyio.CancelScope, due: float) -> None:
        self.delivery = delivery
        self.attempt = attempt
        self.due = due
        self.is_over = False
