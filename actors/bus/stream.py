"""One run's event stream: order, de-duplication, the planner's fence and the readers; keeping it is the store's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from actors.bus.base import MAX_EVENT_BYTES, NO_HEADERS, ConflictError, Posted
from actors.bus.store import EventStore
from messages.errors import BusError

READ_AHEAD = 128
"""Entries that a reader takes from the store at once; between them the other tasks get their turn."""


class EventStream:
    """The events of one run, over what its store holds already."""

    def __init__(self, store: EventStore, *, now: Callable[[], str]) -> None:
        self._store = store
        self._now = now
        self._seqs: dict[str, int] = {}
        self._headers: dict[int, dict[str, str]] = {}
        """Those that are not empty. No store keeps them."""
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
