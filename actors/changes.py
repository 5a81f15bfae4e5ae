"""Something that changes now and then, and those who wait for that."""

from __future__ import annotations

import anyio


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
