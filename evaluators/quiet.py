"""Checks and timings on one device: many checks at once, or one timing alone.

On a CPU the reference's threads are on every core, so whatever else computes makes them wait at their barriers. A
timing that waits goes before checks that have not begun.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class QuietDevice:
    """Readers (checks) and writers (timings), writers first. Not reentrant."""

    def __init__(self) -> None:
        self._changed = anyio.Condition()
        self._checks = 0
        self._timing = False
        self._waiting = 0

    @asynccontextmanager
    async def checking(self) -> AsyncIterator[None]:
        """Wait until nothing is timed or about to be; keep timings away meanwhile."""
        async with self._changed:
            while self._timing or self._waiting:
                await self._changed.wait()
            self._checks += 1
        try:
            yield
        finally:
            self._checks -= 1
            await self._tell()

    @asynccontextmanager
    async def timing(self) -> AsyncIterator[None]:
        """Wait until the checks in flight are done; be alone then."""
        self._waiting += 1
        try:
            async with self._changed:
                while self._timing or self._checks:
                    await self._changed.wait()
                self._timing = True
        finally:
            self._waiting -= 1
            if not self._timing:
                await self._tell()
        try:
            yield
        finally:
            self._timing = False
            await self._tell()

    async def _tell(self) -> None:
        with anyio.CancelScope(shield=True):
            async with self._changed:
                self._changed.notify_all()
