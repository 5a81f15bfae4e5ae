"""A run's event stream: order, de-duplication, the planner's fence, its readers and its store.

The durable store is `actors.bus.journal.JournalStore`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import anyio
import msgspec
import structlog
from anyio.lowlevel import checkpoint

from actors.bus.base import MAX_EVENT_BYTES, NO_HEADERS, ConflictError, Posted
from messages.base import BusError
from messages.codec import Body, CodecError, decode_body, may_say, survives_json

_NO_NUMBER = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")
"""Matches every msgpack message with a NaN or an infinity, and few others."""

log = structlog.get_logger(__name__)


def body_of(posted: Posted) -> Body | None:
    """Return an entry's body; None if it is unreadable, not allowed for its publisher, or unfit for a journal.

    Raises:
        CodecError: the body is unreadable and the bus verifies no roles; a bus that verifies them checked it before
            storing it.
    """
    try:
        body = decode_body(posted.payload)
    except CodecError as error:
        if posted.role is None:
            raise
        log.warning(
            "event left out: it cannot be read",
            seq=posted.seq,
            message=posted.msg_id,
            publisher=posted.role,
            error=str(error),
        )
        return None
    fault = _fault(posted, body)
    if fault:
        log.warning(
            f"event left out: {fault}",
            seq=posted.seq,
            message=posted.msg_id,
            publisher=posted.role,
            event_type=type(body).__name__,
        )
        return None
    return body


def _fault(posted: Posted, body: Body) -> str:
    if posted.role is None:
        return ""
    if not may_say(posted.role, body):
        return "it is not its publisher's to say"
    if _NO_NUMBER.search(posted.payload) is not None and not survives_json(body):
        return "it holds a number that JSON does not have"
    return ""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of an earlier stream entry."""

    seq: int
    msg_id: str
    decision: bool


class EventStore(Protocol):
    """Keeps the entries of one stream, in order. Used by one stream only, from one event loop."""

    def load(self) -> Iterable[Head]:
        """Open the store and return the heads of its entries in order. Called once, before anything else.

        Raises:
            messages.base.BusError: the store is damaged, of a newer version, in use, or unreadable.
        """

    def add(self, entry: Posted, *, decision: bool) -> None:
        """Append the next entry; it is durable once `commit` returns for it.

        Raises:
            messages.base.BusError: the entry cannot be stored; the store is unchanged.
        """

    async def commit(self, seq: int) -> None:
        """Wait until all entries up to `seq` are durable.

        Raises:
            messages.base.BusError: the store has failed and accepts no more entries.
        """

    def read(self, after: int, limit: int) -> Sequence[Posted]:
        """Return the durable entries after `after`, at most `limit`, and at least one if any exist.

        Raises:
            messages.base.BusError: they cannot be read.
        """

    def close(self) -> None:
        """Release the store's open resources."""


class MemoryStore:
    """Keeps entries in memory, for tests and simulations."""

    def __init__(self) -> None:
        self._entries: list[Posted] = []
        self._decisions: set[int] = set()

    def load(self) -> Iterable[Head]:
        """Return the heads left by an earlier stream."""
        return [
            Head(seq=entry.seq, msg_id=entry.msg_id, decision=entry.seq in self._decisions) for entry in self._entries
        ]

    def add(self, entry: Posted, *, decision: bool) -> None:
        """Append an entry."""
        self._entries.append(entry)
        if decision:
            self._decisions.add(entry.seq)

    async def commit(self, seq: int) -> None:
        """Return at once; this store offers no more durability."""

    def read(self, after: int, limit: int) -> Sequence[Posted]:
        """Return entries after `after`."""
        return self._entries[after : after + limit]

    def close(self) -> None:
        """Keep all entries for a stream that reopens this store later."""


READ_AHEAD = 128
"""Entries that a reader takes per batch; other tasks can run between batches."""


class EventStream:
    """The events of one run, over its store."""

    def __init__(self, store: EventStore, *, now: Callable[[], str]) -> None:
        self._store = store
        self._now = now
        self._seqs: dict[str, int] = {}
        self._headers: dict[int, dict[str, str]] = {}
        """Non-empty headers, which no store keeps."""
        self._last = 0
        self._last_decision = 0
        self._grown = anyio.Event()
        for head in store.load():
            self._note(head.msg_id, head.seq, decision=head.decision)

    @property
    def last_seq(self) -> int:
        """Sequence number of the newest entry; 0 if there is none."""
        return self._last

    async def publish(
        self,
        payload: bytes,
        msg_id: str,
        expected_last_decision: int | None,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> int:
        """Append an entry and return its number once it is durable; see `Bus.publish`.

        Once an entry has its number, it is written even if the publisher is cancelled.
        """
        await checkpoint()
        seq = self._seqs.get(msg_id)
        if seq is None:
            seq = self._add(payload, msg_id, expected_last_decision)
            if headers:
                self._headers[seq] = dict(headers)
        with anyio.CancelScope(shield=True):
            await self._store.commit(seq)
        self._grown.set()
        self._grown = anyio.Event()
        return seq

    def seq_of(self, msg_id: str) -> int | None:
        """Return the number of the entry with this id, or None."""
        return self._seqs.get(msg_id)

    async def read(self, after: int) -> AsyncGenerator[Posted, None]:
        """Yield every durable entry after `after`, then follow for ever."""
        while True:
            await checkpoint()
            entries = self._store.read(after, READ_AHEAD)
            for entry in entries:
                headers = self._headers.get(entry.seq)
                yield entry if headers is None else msgspec.structs.replace(entry, headers=headers)
                after = entry.seq
            if not entries:
                await self._grown.wait()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _add(self, payload: bytes, msg_id: str, expected_last_decision: int | None) -> int:
        if len(payload) > MAX_EVENT_BYTES:
            raise BusError(f"event {msg_id!r} has {len(payload)} bytes; at most {MAX_EVENT_BYTES} may be published")
        decision = expected_last_decision is not None
        if decision and expected_last_decision != self._last_decision:
            raise ConflictError(
                f"decision {msg_id!r} was made after record {expected_last_decision}, but record "
                f"{self._last_decision} is the last decision: another planner writes to this run"
            )
        seq = self._last + 1
        self._store.add(Posted(seq=seq, at=self._now(), msg_id=msg_id, payload=payload), decision=decision)
        self._note(msg_id, seq, decision=decision)
        return seq

    def _note(self, msg_id: str, seq: int, *, decision: bool) -> None:
        self._last = seq
        self._seqs[msg_id] = seq
        if decision:
            self._last_decision = seq
