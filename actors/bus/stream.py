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
"""Found in every msgpack text with a NaN or an infinity, and in few others."""

log = structlog.get_logger(__name__)


def body_of(posted: Posted) -> Body | None:
    """Return an entry's body; None if it is unreadable, not its publisher's to say, or not fit for a journal.

    Raises:
        CodecError: it is unreadable, and the bus vouches for no role: then it was checked before it was kept.
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
    """A stream's knowledge of an earlier entry."""

    seq: int
    msg_id: str
    decision: bool


class EventStore(Protocol):
    """Keeps the entries of one stream, in order. Used by one stream only, from one event loop."""

    def load(self) -> Iterable[Head]:
        """Open the store and tell what it holds, in order. Called once, before anything else.

        Raises:
            messages.base.BusError: it is damaged, of a newer version, in use, or cannot be read.
        """

    def add(self, entry: Posted, *, decision: bool) -> None:
        """Take an entry, the one after the last; it is durable once `commit` returns for it.

        Raises:
            messages.base.BusError: it cannot be kept; the store is as it was.
        """

    async def commit(self, seq: int) -> None:
        """Return when all entries up to `seq` are durable.

        Raises:
            messages.base.BusError: the store has failed, and takes nothing more.
        """

    def read(self, after: int, limit: int) -> Sequence[Posted]:
        """Return the durable entries behind `after`, at most `limit` and at least one if there is any.

        Raises:
            messages.base.BusError: they cannot be read.
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


READ_AHEAD = 128
"""Entries that a reader takes at once; between them the other tasks get their turn."""


class EventStream:
    """The events of one run, over its store."""

    def __init__(self, store: EventStore, *, now: Callable[[], str]) -> None:
        self._store = store
        self._now = now
        self._seqs: dict[str, int] = {}
        self._headers: dict[int, dict[str, str]] = {}
        """Non-empty ones. No store keeps them."""
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

        Once an entry has its number it is written, even if the publisher is cancelled meanwhile.
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
        """Return the number of the entry with this id, if there is one."""
        return self._seqs.get(msg_id)

    async def read(self, after: int) -> AsyncGenerator[Posted, None]:
        """Yield every durable entry behind `after`, then follow for ever."""
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
        """Let go of the store."""
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
