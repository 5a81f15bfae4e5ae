"""What every source of a run's records promises, held by one class; test files give the fixture `run`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Protocol

import anyio
import pytest

from ksearch_async.runs.feed import Batch, Feed
from messages.codec import Record
from tests.ksearch_async.stories import sequel, story

PATIENCE_S = 30


class Fed(Protocol):
    """A run whose records somebody keeps."""

    feed: Feed

    async def append(self, record: Record) -> None:
        """Keep a record: in the stories' order, all of them."""


class FeedContract:
    """Promises of `ksearch_async.runs.feed.Feed`."""

    pytestmark = pytest.mark.anyio

    async def test_what_is_there_is_read_and_then_known_to_be_all(self, run: Fed) -> None:
        for record in story():
            await run.append(record)
        batches = await until_current(run.feed)
        assert told(batches) == [(record.seq, record.body) for record in story()]
        assert [batch.is_current for batch in batches] == [False] * (len(batches) - 1) + [True]

    async def test_a_run_without_records_is_known_to_have_none(self, run: Fed) -> None:
        assert told(await until_current(run.feed)) == []

    async def test_what_comes_later_is_read_once_and_in_order(self, run: Fed) -> None:
        first, *rest = sequel()
        await run.append(first)
        async with collected(run.feed) as seen:
            await reached(seen, 1)
            for number, record in enumerate(rest, start=2):
                await run.append(record)
                await reached(seen, number)
        assert [(record.seq, record.body) for record in seen.records] == [(each.seq, each.body) for each in sequel()]

    async def test_readers_do_not_disturb_each_other(self, run: Fed) -> None:
        for record in story():
            await run.append(record)
        async with collected(run.feed) as one, collected(run.feed) as other:
            await reached(one, len(story()))
            await run.append(sequel()[len(story())])
            await reached(one, len(story()) + 1)
            await reached(other, len(story()) + 1)
        assert one.records == other.records


class Seen:
    """What a reader has read so far."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.changed = anyio.Event()


@asynccontextmanager
async def collected(feed: Feed) -> AsyncIterator[Seen]:
    """Read for as long as the context lasts."""
    seen = Seen()

    async def read() -> None:
        async with aclosing(feed.batches()) as batches:
            async for batch in batches:
                seen.records.extend(batch.records)
                seen.changed.set()
                seen.changed = anyio.Event()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield seen
        tasks.cancel_scope.cancel()


async def reached(seen: Seen, count: int) -> None:
    """Wait until so many records were read."""
    with anyio.fail_after(PATIENCE_S):
        while len(seen.records) < count:
            await seen.changed.wait()


async def until_current(feed: Feed) -> list[Batch]:
    """Return the batches up to the one that says that there is no more."""
    batches = []
    with anyio.fail_after(PATIENCE_S):
        async with aclosing(feed.batches()) as reading:
            async for batch in reading:
                batches.append(batch)
                if batch.is_current:
                    break
    return batches


def told(batches: list[Batch]) -> list[tuple[int, object]]:
    """Return what records say, and where they stand; a stream gives them stamps of its own."""
    return [(record.seq, record.body) for batch in batches for record in batch.records]
