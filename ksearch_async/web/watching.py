"""Server-sent events: a run's updates from behind any of them on, and the list of runs whenever it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import msgspec

from ksearch_async.web.opened import OpenedRun
from ksearch_async.web.shelf import Shelf

KEEP_ALIVE_S = 15.0
"""So often something is said, so that nobody between takes the connection for dead."""
PACE_S = 0.25
"""The list of runs is told no more often."""
_AT_ONCE = 256
_STILL_HERE = b": still here\n\n"


async def told_updates(opened: OpenedRun, after: int, *, keep_alive_s: float = KEEP_ALIVE_S) -> AsyncIterator[bytes]:
    """Yield a run's updates behind a record, then those that come.

    The last event is `reset` if the run does not go that far: it is not the one that the watcher knew; `trouble` if
    it cannot be read any more. Whoever comes again finds it opened anew.
    """
    yield _STILL_HERE
    if after > opened.last_seq:
        yield _event(b"reset", msgspec.json.encode({"last_seq": opened.last_seq}))
        return
    index = opened.index_after(after)
    while True:
        block = opened.updates(index, index + _AT_ONCE)
        if block:
            yield b"".join(
                b"id: %d\n%s" % (opened.seq_at(place), _event(b"update", update))
                for place, update in enumerate(block, index)
            )
            index += len(block)
        elif opened.failure is not None:
            yield _event(b"trouble", msgspec.json.encode({"error": str(opened.failure)}))
            return
        else:
            with anyio.move_on_after(keep_alive_s) as waiting:
                await opened.news(index)
            if waiting.cancelled_caught:
                yield _STILL_HERE


async def told_runs(shelf: Shelf, *, keep_alive_s: float = KEEP_ALIVE_S) -> AsyncIterator[bytes]:
    """Yield the list of runs, then again whenever it is another one."""
    while True:
        version = shelf.version
        yield _event(b"runs", msgspec.json.encode({"runs": shelf.rows()}))
        while version == shelf.version:
            with anyio.move_on_after(keep_alive_s) as waiting:
                await shelf.change(version)
            if waiting.cancelled_caught:
                yield _STILL_HERE
        await anyio.sleep(PACE_S)


def _event(name: bytes, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name, data)
