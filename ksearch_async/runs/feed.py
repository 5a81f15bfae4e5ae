"""A run's records as they arrive, from its journal or its stream.

Both feeds only read, take no lock, and never end: a finished run may be resumed. They yield records in batches, as
found, so that a long run is folded at the speed of its file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Protocol

import anyio
import anyio.to_thread
import msgspec

from actors.bus.base import Bus
from actors.bus.journal import SPAN_BYTES, as_bus_errors, is_torn, parse_line
from actors.bus.stream import body_of
from messages.base import BusError
from messages.codec import Record

LOOK_S = 0.2
"""Seconds until a journal that has grown is read again. One that has not grown is read at growing intervals."""
_RARELY = 5
"""The longest interval, as a multiple of `LOOK_S`."""
_BATCH = 256
"""Entries of a stream that are yielded together, while there are more."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were read together, in order."""

    records: tuple[Record, ...] = ()
    is_current: bool = False
    """True if there were no further records when these were read."""


class Feed(Protocol):
    """A run's records."""

    def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield all records, then new ones, for ever. Close it (`aclosing`) when done.

        At least one batch is yielded, so that a reader learns that there are no more records yet.

        Raises:
            messages.base.BusError: they cannot be read, or are not records of ours.
        """


class JournalFeed:
    """Reads a run's folder."""

    def __init__(self, journal: Path, *, look_s: float = LOOK_S) -> None:
        self._journal = journal
        self._look_s = look_s

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See `Feed.batches`. Waits for the rest of an incomplete last line."""
        reader, wait_s, first = JournalReader(self._journal), self._look_s, True
        while True:
            batch = await anyio.to_thread.run_sync(reader.read)
            if batch.records or first:
                yield batch
            first = False
            wait_s = self._look_s if batch.records else min(2 * wait_s, _RARELY * self._look_s)
            if batch.is_current:
                await anyio.sleep(wait_s)


class StreamFeed:
    """Reads a run's stream on a bus."""

    def __init__(self, bus: Bus, run_id: str) -> None:
        self._bus = bus
        self._run_id = run_id

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """See `Feed.batches`. Leaves out messages that are not from the run's actors."""
        known = await self._bus.open_stream(self._run_id)
        if not known:
            yield Batch(is_current=True)
        waiting: list[Record] = []
        async with aclosing(self._bus.events(self._run_id, after=0)) as events:
            async for posted in events:
                if (body := body_of(posted)) is not None:
                    waiting.append(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body))
                if posted.seq >= known or len(waiting) >= _BATCH:
                    yield Batch(records=tuple(waiting), is_current=posted.seq >= known)
                    waiting.clear()


class JournalReader:
    """Reads a journal that may still grow, a span at a time, and keeps only its position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        """Position after the last line that was read."""
        self._lines = 0
        self._last = 0
        self._identity: tuple[int, int] | None = None

    def read(self) -> Batch:
        """Return the records of about the next `SPAN_BYTES`; none if nothing was added."""
        with as_bus_errors(self._path), _open_journal(self._path) as file:
            size = self._check(os.fstat(file.fileno()))
            block = self._span(file.fileno(), size) if size > self._offset else b""
        return self._parse(block, at_end=self._offset + len(block) >= size)

    def _check(self, status: os.stat_result) -> int:
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity) or status.st_size < self._offset:
            raise BusError(f"journal {self._path} was replaced by another one while it was read")
        self._identity = identity
        return status.st_size

    def _span(self, fd: int, size: int) -> bytes:
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
            records.append(parse_line(line, self._lines + 1, self._last, self._path))
            self._offset += len(line)
            self._lines += 1
            self._last = records[-1].seq
        return Batch(records=tuple(records), is_current=at_end)


def _open_journal(path: Path) -> BinaryIO:
    """Open a journal for reading, without following links, and only if it is a regular file.

    Raises:
        messages.base.BusError: it is not a file.
        OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        file.close()
        raise BusError(f"journal {path} is no file")
    return file
