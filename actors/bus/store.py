"""What keeps a run's event stream: the protocol, and the store that forgets when the process ends.

The durable sibling is `actors.bus.journal.JournalStore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from actors.bus.base import Posted


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream must know of an entry that was there before."""

    seq: int
    msg_id: str
    decision: bool


class EventStore(Protocol):
    """Keeps the entries of one stream, in order. Used by one stream only, from one event loop."""

    def load(self) -> Iterable[Head]:
        """Open the store and tell what it holds, in order. Called once, before anything else.

        Raises:
            messages.errors.BusError: it is damaged, of a newer version, in use, or cannot be read.
        """

    def add(self, entry: Posted, *, decision: bool) -> None:
        """Take an entry, the one after the last; it is durable once `commit` returns for it.

        Raises:
            messages.errors.BusError: it cannot be kept; the store is as it was.
        """

    async def commit(self, seq: int) -> None:
        """Return when all entries up to `seq` are durable.

        Raises:
            messages.errors.BusError: the store has failed, and takes nothing more.
        """

    def read(self, after: int, limit: int) -> Sequence[Posted]:
        """Return the durable entries behind `after`, at most `limit` and at least one if there is any.

        Raises:
            messages.errors.BusError: they cannot be read.
        """

    def close(self) -> None:
        """Let go of what the store holds open."""


class MemoryStore:
    """Keeps entries for as long as it lives; for tests and simulations."""

    def __init__(self) -> None:
        self._entries: list[Posted] = []
        self._decisions: set[int] = set()

    def load(self) -> Iterable[Head]:
        """Tell what an earlier stream left here."""
        return [
            Head(seq=entry.seq, msg_id=entry.msg_id, decision=entry.seq in self._decisions) for entry in self._entries
        ]

    def add(self, entry: Posted, *, decision: bool) -> None:
        """Take an entry."""
        self._entries.append(entry)
        if decision:
            self._decisions.add(entry.seq)

    async def commit(self, seq: int) -> None:
        """Return at once: it is as durable as this store is."""

    def read(self, after: int, limit: int) -> Sequence[Posted]:
        """Return entries behind `after`."""
        return self._entries[after : after + limit]

    def close(self) -> None:
        """Keep everything, for a stream that is opened over it later."""
