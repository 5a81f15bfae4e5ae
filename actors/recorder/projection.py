"""A local copy of a run's stream that is stored elsewhere, for all readers of run folders.

Each line is a record with its number in the stream. Unreadable entries are omitted, and the next line says so. Copying
resumes at the end of the file; a torn last line is cut off and copied again. The file is locked like a journal, so a
folder has one recorder. It is not synced: what a power failure destroys is copied again.
"""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from actors.bus.base import Posted
from actors.bus.journal import as_bus_errors, open_locked, records, write_all
from messages.base import BusError
from messages.codec import Body, Record, encode_line

log = structlog.get_logger(__name__)


class Projection:
    """Copies a stream's records to a file, in order."""

    def __init__(self, path: Path) -> None:
        """Lock the file, creating it if necessary, and find its end.

        Raises:
            messages.base.BusError: the file is in use, damaged, or cannot be written.
        """
        self._path = path
        self._last = 0
        self._end = 0
        with as_bus_errors(path):
            self._fd = open_locked(path, durable=False)
        try:
            self._find_end()
        except BaseException:
            self.close()
            raise

    @property
    def last_seq(self) -> int:
        """Number of the last copied record; 0 if there is none."""
        return self._last

    def take(self, posted: Posted, body: Body) -> None:
        """Copy a record, unless it was copied before. Raises `BusError` after removing a half-written record."""
        if posted.seq <= self._last:
            return
        after = None if posted.seq == self._last + 1 else self._last
        line = encode_line(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body, after=after))
        with as_bus_errors(self._path):
            try:
                write_all(self._fd, line)
            except OSError:
                os.ftruncate(self._fd, self._end)
                raise
        self._last = posted.seq
        self._end += len(line)

    def close(self) -> None:
        """Close and thereby unlock the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def check(self, run_id: str, last_in_stream: int) -> None:
        """Raise `BusError` if the file has more records than the run's stream and so cannot be a copy of it."""
        if self._last > last_in_stream:
            raise BusError(
                f"{self._path} holds record {self._last}, and run {run_id!r} on the server ends with {last_in_stream}: "
                "they are not the same run; move the folder away"
            )

    def _find_end(self) -> None:
        with as_bus_errors(self._path), self._path.open("rb") as file:
            for record, end in records(file, self._path, gaps=True):
                self._last, self._end = record.seq, end
            torn_bytes = os.fstat(self._fd).st_size - self._end
            if torn_bytes:
                os.ftruncate(self._fd, self._end)
                log.warning("torn last line cut off", journal=str(self._path), bytes=torn_bytes)
