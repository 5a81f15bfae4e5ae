"""Says on stderr what a start waits for, once it takes its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

import anyio

from ksearch_async.runs.resume import Start
from ksearch_async.views.terminal import note

T = TypeVar("T")
_PATIENCE_S = 2.0
"""A start that takes longer is explained."""
_AGAIN_S = 10.0


@asynccontextmanager
async def explained(opening: AbstractAsyncContextManager[T], start: Start | None = None) -> AsyncIterator[T]:
    """Open what has the reference run, or waits for others; while that takes its time, say so on stderr."""
    async with anyio.create_task_group() as beside:
        waiting = anyio.CancelScope()
        beside.start_soon(_explain, waiting, start or Start(note))
        async with opening as opened:
            waiting.cancel()
            yield opened


async def _explain(waiting: anyio.CancelScope, start: Start) -> None:
    begun = anyio.current_time()
    with waiting:
        await anyio.sleep(_PATIENCE_S)
        note(f"{start.doing} ...")
        while True:
            await anyio.sleep(_AGAIN_S)
            note(f"still {start.doing}: {anyio.current_time() - begun:.0f} s; Ctrl-C gives up")
