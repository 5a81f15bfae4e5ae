"""A run's journal: one JSON record per line, append-only.

Rules of reading:

- A record's number equals its line number. In the recorder's projection of another bus's stream, numbers may be
  missing; the record after a gap then names the one before it. `JournalStore`, which would append, refuses such files.
- A last line that lacks its newline or is not JSON was torn by a crash before its publish returned, so it must be
  published again.
- Any other line that is not a record with the expected number, or has an unknown tag, is an error that names file and
  line.

With `sync="never"` a record is in the page cache when publish returns: it survives `kill -9` of this process, but not a
power cut. With `always` it is on disk (fdatasync), with one sync per batch of concurrent publishers, in a thread.
"""

from __future__ import annotations

import fcntl
import os
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import BinaryIO, Literal

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.bus.base import Posted
from actors.bus.stream import Head
from messages import codec
from messages.base import BusError, copied
from messages.codec import CodecError, Record
from messages.facts import Decided

TAIL_ENTRIES = 256
"""Number of latest entries kept in memory for live readers."""
SPAN_BYTES = 1 << 20
"""Bytes of the file read at once."""

_log = structlog.get_logger(__name__)
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


def read_journal(path: Path) -> Iterator[Record]:
    """Yield the records of a journal, which may be in use; skip a torn last line.

    Raises:
        BusError: the journal is unreadable, damaged, or of a newer version.
    """
    with as_bus_errors(path), path.open("rb") as file:
        for record, _ in records(file, path, gaps=True):
            yield record


class JournalStore:
    """An `actors.bus.stream.EventStore` that keeps a run's event stream in a locked file.

    After a failed write or sync it accepts no more entries: the file's content is uncertain until it is loaded again.
    """

    def __init__(self, path: Path, *, sync: Literal["always", "never"]) -> None:
        """Set the path of the file, which `load` opens or creates. `sync`: durability when publish returns."""
        self._path = path
        self._sync = sync
        self._fd = -1
        self._starts = array("Q")
        """Offset of every durable line."""
        self._end = 0
        """Offset of the end of the last durable line."""
        self._pending: list[tuple[Posted, bytes]] = []
        self._tail: deque[Posted] = deque(maxlen=TAIL_ENTRIES)
        self._writing = anyio.Lock()
        self._failure = ""

    def load(self) -> Iterable[Head]:
        """Lock the file, check every line, and cut off a torn last one."""
        with as_bus_errors(self._path):
            self._fd = open_locked(self._path, durable=self._sync == "always")
            try:
                return self._load()
            except BaseException:
                self.close()
                raise

    def add(self, entry: Posted, *, decision: bool) -> None:
        """Turn an entry into its line; `commit` writes it."""
        if self._fd < 0:
            raise BusError(f"journal {self._path} is closed")
        self._check()
        self._pending.append((entry, _line_of(entry, decision=decision)))

    async def commit(self, seq: int) -> None:
        """Write pending entries, unless a concurrent publisher has done so."""
        if self._sync == "never":
            self._write_pending(self._take_pending())
        else:
            async with self._writing:
                if seq > len(self._starts):
                    await anyio.to_thread.run_sync(self._write_pending, self._take_pending())
        if seq > len(self._starts):
            self._check()

    def read(self, after: int, limit: int) -> Sequence[Posted]:
        """Return entries from memory if they are recent, else from the file."""
        last = min(after + limit, len(self._starts))
        if last <= after:
            return ()
        if self._tail and self._tail[0].seq <= after + 1:
            first = after + 1 - self._tail[0].seq
            return list(islice(self._tail, first, first + last - after))
        return self._read_span(after, last)

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load(self) -> list[Head]:
        heads = []
        with self._path.open("rb") as file:
            for record, end in records(file, self._path, gaps=False):
                self._starts.append(self._end)
                self._end = end
                heads.append(Head(seq=record.seq, msg_id=record.msg_id, decision=isinstance(record.body, Decided)))
        torn_bytes = os.fstat(self._fd).st_size - self._end
        if torn_bytes:
            os.ftruncate(self._fd, self._end)
            _log.warning("torn last line cut off", journal=str(self._path), line=len(heads) + 1, bytes=torn_bytes)
        return heads

    def _take_pending(self) -> list[tuple[Posted, bytes]]:
        batch, self._pending = self._pending, []
        return batch

    def _write_pending(self, batch: list[tuple[Posted, bytes]]) -> None:
        self._check()
        try:
            write_all(self._fd, b"".join(line for _, line in batch))
            if self._sync == "always":
                _sync_data(self._fd)
        except OSError as error:
            self._failure = f"journal {self._path} cannot be written: {error}; once that is put right, resume the run"
            raise BusError(self._failure) from error
        for entry, line in batch:
            self._tail.append(entry)
            self._end += len(line)
            self._starts.append(self._end - len(line))

    def _read_span(self, after: int, last: int) -> list[Posted]:
        start = self._starts[after]
        stop = last
        while stop > after + 1 and self._end_of(stop) - start > SPAN_BYTES:
            stop = after + (stop - after) // 2
        with as_bus_errors(self._path):
            span = os.pread(self._fd, self._end_of(stop) - start, start)
        found = []
        for number, line in enumerate(span.splitlines(keepends=True), start=after + 1):
            record = parse_line(line, number, number - 1, self._path)
            found.append(copied(Posted, record, payload=codec.encode(record.body)))
        return found

    def _end_of(self, seq: int) -> int:
        return self._end if seq == len(self._starts) else self._starts[seq]

    def _check(self) -> None:
        if self._failure:
            raise BusError(self._failure)


def _line_of(entry: Posted, *, decision: bool) -> bytes:
    try:
        body = codec.decode_body(entry.payload)
        record = Record(seq=entry.seq, at=entry.at, msg_id=entry.msg_id, body=body)
        line = codec.encode_line(record)
        is_faithful = codec.survives_json(body)
    except CodecError as error:
        raise BusError(f"event {entry.msg_id!r} cannot be kept in a journal: {error}") from error
    if not is_faithful:
        raise BusError(f"event {entry.msg_id!r} cannot be kept in a journal: it holds a number that JSON does not have")
    if isinstance(body, Decided) != decision:
        raise BusError(f"event {entry.msg_id!r}: decisions of a planner, and nothing else, are published with a fence")
    return line


def records(file: BinaryIO, path: Path, *, gaps: bool) -> Iterator[tuple[Record, int]]:
    """Yield each record with the end offset of its line, up to a torn last line.

    `gaps` allows missing numbers.

    Raises:
        BusError: a line is not a record with the expected number.
    """
    end = last = 0
    ahead = file.readline()
    for number in count(1):
        line, ahead = ahead, file.readline()
        if not line or (not ahead and is_torn(line)):
            return
        end += len(line)
        record = parse_line(line, number, last, path)
        if record.after is not None and not gaps:
            raise BusError(
                f"{path}, line {number}: this is the recording of a run on a NATS server, which goes on there"
            )
        last = record.seq
        yield record, end


def parse_line(line: bytes, number: int, last: int, path: Path) -> Record:
    """Parse a complete line; `number` is the line's number, `last` the previous record's (0: none).

    Raises:
        BusError: the line is not a record, or not the one expected here.
    """
    try:
        record = codec.decode_line(line)
    except CodecError as error:
        raise BusError(f"{path}, line {number}: {error}") from error
    if record.seq != last + 1 and not (record.after == last and record.seq > last):
        raise BusError(f"{path}, line {number}: record {record.seq} stands where record {last + 1} belongs")
    return record


def is_torn(line: bytes) -> bool:
    """Return True if a last line was not completely written."""
    if not line.endswith(b"\n"):
        return True
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def write_all(fd: int, block: bytes) -> None:
    """Write everything. Raises `OSError`."""
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(fd, rest) :]


def open_locked(path: Path, *, durable: bool) -> int:
    """Open and lock a journal, creating it if needed. The lock ends with the process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if durable:
            _sync_folder(path.parent)
    except BlockingIOError as error:
        holder = _lock_holder(fd)
        os.close(fd)
        raise BusError(f"run {str(path.parent)!r} is in use by {holder}: stop that one first") from error
    except OSError:
        os.close(fd)
        raise
    return fd


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock_holder(fd: int) -> str:
    """Describe the process that holds the lock, if the system reports it (Linux, same pid namespace)."""
    status = os.fstat(fd)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        lines = []
    for fields in (line.split() for line in lines):
        # "1: FLOCK ADVISORY WRITE 708 08:01:1234 0 EOF"
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted:
            return f"process {fields[4]}"
    return "another process"


@contextmanager
def as_bus_errors(path: Path) -> Iterator[None]:
    """Re-raise `OSError` as `BusError` naming the file."""
    try:
        yield
    except OSError as error:
        raise BusError(f"journal {path}: {error.strerror or error}") from error
