"""Where a run's records come from: its journal, or its stream on a server; first what is there, then what comes.

Both feeds read and change nothing, take no lock, and go on for ever: a run that is over may be resumed. They yield
records in batches, as they found them, so that a long run is folded at the speed of its file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import msgspec

from actors.bus.base import Bus, Posted
from actors.bus.journal import SPAN_BYTES, as_bus_errors, is_torn, parse_line
from actors.bus.reading import body_of
from messages.codec import Record
from messages.errors import BusError

LOOK_S = 0.2
"""How often a journal that does not grow is looked at."""
_BATCH = 256
"""Entries of a stream that are handed on together, while there are more."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were read together, in order."""

    records: tuple[Record, ...] = ()
    is_current: bool = False
    """Nothing more was there when they were read."""


class Feed(Protocol):
    """A run's records."""

    def batches(self, *, after: int = 0) -> AsyncGenerator[Batch, None]:
        """Yield the records behind `after`, then those that come, for ever. Close it (`aclosing`) when done.

        At least one batch is yielded, so that a reader learns that there is nothing more.

        Raises:
            messages.errors.BusError: they cannot be read, or are no records of ours.
        """


async def records_of(feed: Feed, *, after: int = 0) -> AsyncIterator[Record]:
    """Yield a run's records behind `after`, one after the other, then those that come, for ever.

    Raises:
        messages.errors.BusError: as `Feed.batches`.
    """
    async with aclosing(feed.batches(after=after)) as batches:
        async for batch in batches:
            for record in batch.records:
                yield record


class JournalFeed:
    """Reads a run's folder."""

    def __init__(self, journal: Path, *, look_s: float = LOOK_S) -> None:
        self._journal = journal
        self._look_s = look_s

    async def batches(self, *, after: int = 0) -> AsyncGenerator[Batch, None]:
        """See `Feed.batches`. A torn last line is waited for."""
        reader = JournalReader(self._journal)
        first = True
        while True:
            batch = await anyio.to_thread.run_sync(reader.read)
            known = [record for record in batch.records if record.seq > after]
            if known or first or batch.records:
                yield Batch(records=tuple(known), is_current=batch.is_current)
            first = False
            if batch.is_current:
                await anyio.sleep(self._look_s)


class StreamFeed:
    """Reads a run's stream on a bus."""

    def __init__(self, bus: Bus, run_id: str) -> None:
        self._bus = bus
        self._run_id = run_id

    async def batches(self, *, after: int = 0) -> AsyncGenerator[Batch, None]:
        """See `Feed.batches`. What others than a run's actors say there is left out."""
        known = await self._bus.open_stream(self._run_id)
        if known <= after:
            yield Batch(is_current=True)
        waiting: list[Record] = []
        async with aclosing(self._bus.events(self._run_id, after=after)) as events:
            async for posted in events:
                waiting.extend(_record(posted))
                if posted.seq >= known or len(waiting) >= _BATCH:
                    yield Batch(records=tuple(waiting), is_current=posted.seq >= known)
                    waiting.clear()


def _record(posted: Posted) -> list[Record]:
    body = body_of(posted)
    return [Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body)] if body is not None else []


class JournalReader:
    """Reads a journal that somebody may be appending to, a span at a time, and remembers only how far it came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        """Behind the last line that was read."""
        self._lines = 0
        self._last = 0
        self._identity: tuple[int, int] | None = None

    def read(self) -> Batch:
        """Return the records of about the next `SPAN_BYTES`; none if nothing was added.

        Raises:
            BusError: the journal cannot be read, is damaged, or is another one than before.
        """
        with as_bus_errors(self._path):
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                size = self._check(os.fstat(fd))
                block = self._span(fd, size) if size > self._offset else b""
            finally:
                os.close(fd)
        return self._parse(block, at_end=self._offset + len(block) >= size)

    def _check(self, status: os.stat_result) -> int:
        """Return the file's size, if it is the one that was read before."""
        if not stat.S_ISREG(status.st_mode):
            raise BusError(f"journal {self._path} is no file")
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity) or status.st_size < self._offset:
            raise BusError(f"journal {self._path} was replaced by another one while it was read")
        self._identity = identity
        return status.st_size

    def _span(self, fd: int, size: int) -> bytes:
        """Read on, to the end of a line if there is one."""
        wanted = SPAN_BYTES
        while True:
            block = os.pread(fd, wanted, self._offset)
            if b"\n" in block or self._offset + wanted >= size or len(block) < wanted:
                return block
            wanted *= 2

    def _parse(self, block: bytes, *, at_end: bool) -> Batch:
        lines = block.splitlines(keepends=True)
        if lines and (not lines[-1].endswith(b"\n") or (at_end and is_torn(lines[-1]))):
            lines.pop()
        records = []
        for line in lines:
            record = parse_line(line, self._lines + 1, self._last, self._path)
            self._offset += len(line)
            self._lines += 1
            self._last = record.seq
            records.append(record)
        return Batch(records=tuple(records), is_current=at_end)
