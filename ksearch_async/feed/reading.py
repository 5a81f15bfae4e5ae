"""Where a run's records come from: its journal, or its stream on a server; first what is there, then what comes.

Both feeds read and change nothing, take no lock, and go on for ever: a run that is over may be resumed. They yield
records in batches, as they found them, so that a long run is folded at the speed of its file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Protocol

import anyio
import anyio.to_thread
import msgspec

from actors.bus.base import Bus, Posted
from actors.bus.journal import SPAN_BYTES, as_bus_errors, is_torn, parse_line
from actors.bus.reading import body_of
from messages.codec import CodecError, Record, decode_line
from messages.errors import BusError

LOOK_S = 0.2
"""After so long a journal that has grown is looked at again; one that has not, after ever longer."""
_RARELY = 5
"""Up to so many times that."""
_BATCH = 256
"""Entries of a stream that are handed on together, while there are more."""
_NEAR = 64
"""Entries that are read and thrown away rather than asking once more."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were read together, in order."""

    records: tuple[Record, ...] = ()
    places: tuple[int, ...] = ()
    """Where `Feed.at` finds each of them again."""
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

    async def at(self, places: Sequence[int]) -> list[Record]:
        """Return records that were read before, by their places, in ascending order.

        Raises:
            messages.errors.BusError: they are not there any more.
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
        reader, wait_s, first = JournalReader(self._journal), self._look_s, True
        while True:
            batch = await anyio.to_thread.run_sync(reader.read)
            if batch.records or first:
                yield _behind(batch, after)
            first = False
            wait_s = self._look_s if batch.records else min(2 * wait_s, _RARELY * self._look_s)
            if batch.is_current:
                await anyio.sleep(wait_s)

    async def at(self, places: Sequence[int]) -> list[Record]:
        """See `Feed.at`. A place is the beginning of a line, in bytes."""
        return await anyio.to_thread.run_sync(read_lines, self._journal, places)


def _behind(batch: Batch, after: int) -> Batch:
    """Return a batch without the records up to `after`."""
    skipped = sum(record.seq <= after for record in batch.records)
    return Batch(records=batch.records[skipped:], places=batch.places[skipped:], is_current=batch.is_current)


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
                    places = tuple(record.seq for record in waiting)
                    yield Batch(records=tuple(waiting), places=places, is_current=posted.seq >= known)
                    waiting.clear()

    async def at(self, places: Sequence[int]) -> list[Record]:
        """See `Feed.at`. A place is the number of an entry."""
        found: list[Record] = []
        for span in _spans(places):
            async with aclosing(self._bus.events(self._run_id, after=span[0] - 1)) as events:
                async for posted in events:
                    if posted.seq in span:
                        found.extend(_record(posted))
                    if posted.seq >= span[-1]:
                        break
        return found


def _spans(places: Sequence[int]) -> list[list[int]]:
    """Return places in ascending order, in groups that are read in one go: what lies between costs less than asking."""
    spans: list[list[int]] = []
    for place in sorted(set(places)):
        if spans and place - spans[-1][-1] <= _NEAR:
            spans[-1].append(place)
        else:
            spans.append([place])
    return spans


def _record(posted: Posted) -> list[Record]:
    body = body_of(posted)
    return [Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body)] if body is not None else []


def read_lines(journal: Path, places: Sequence[int]) -> list[Record]:
    """Return the records of lines that begin at these places, in ascending order.

    Raises:
        messages.errors.BusError: there are none.
    """
    with as_bus_errors(journal), open_journal(journal) as file:
        return [_line_at(file, journal, place) for place in sorted(set(places))]


def _line_at(file: BinaryIO, journal: Path, place: int) -> Record:
    file.seek(place)
    try:
        return decode_line(file.readline())
    except CodecError as error:
        raise BusError(f"journal {journal} was replaced by another one while it was read") from error


def open_journal(path: Path) -> BinaryIO:
    """Open a journal for reading; never what a link leads to, and nothing that is no file.

    Raises:
        messages.errors.BusError: it is no file.
        OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        file.close()
        raise BusError(f"journal {path} is no file")
    return file


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
        with as_bus_errors(self._path), open_journal(self._path) as file:
            size = self._check(os.fstat(file.fileno()))
            block = self._span(file.fileno(), size) if size > self._offset else b""
        return self._parse(block, at_end=self._offset + len(block) >= size)

    def _check(self, status: os.stat_result) -> int:
        """Return the file's size, if it is the one that was read before."""
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
        records, places = [], []
        for line in lines:
            record = parse_line(line, self._lines + 1, self._last, self._path)
            places.append(self._offset)
            self._offset += len(line)
            self._lines += 1
            self._last = record.seq
            records.append(record)
        return Batch(records=tuple(records), places=tuple(places), is_current=at_end)
