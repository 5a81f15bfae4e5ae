"""Event streams: publishing with exact de-duplication, the planner's fence, and ordered reading without gaps.

A reader requests the stored messages after its last one, and again after a short pause. This creates no consumer, so
read-only clients can do it too.

An event's subject consists of its publisher's role and its id, and the event is stored only if the subject is empty. So
an id is stored once for the life of the stream, and no role can use up another's ids. Decisions share one subject; each
is stored only if the last one is the one its planner knows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import get_args

import anyio
import msgspec
import structlog

from actors.bus.base import MAX_EVENT_BYTES, NO_HEADERS, ConflictError, Posted, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection, NoAnswerError, Patience
from actors.bus.nats.entries import Bucket
from actors.bus.nats.wire import (
    STREAM_EXISTS,
    WRONG_LAST_SEQUENCE,
    RefusedError,
    StreamConfig,
    StreamInfo,
    proves_nothing,
)
from messages.base import BusError, Role

log = structlog.get_logger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.25
"""Bounds of the pause between polls; it grows while nothing arrives, so an event waits only a fraction of the preceding
silence."""
_SPILL: frozenset[Role] = frozenset({"planner", "coder", "builder"})
"""Roles that may store blobs; a blob named by another role cannot exist."""


async def read_events(connection: Connection, blobs: Blobs, run_id: str, after: int) -> AsyncGenerator[Posted, None]:
    """Yield every entry after `after`, then follow the stream for ever; see `Bus.events`."""
    async with aclosing(_batches(connection, run_id, after)) as batches:
        async for found in batches:
            for reply in found:
                posted = await _posted(blobs, run_id, reply)
                if posted is not None:
                    yield posted


async def _batches(connection: Connection, run_id: str, after: int) -> AsyncGenerator[list[Reply], None]:
    what, stream = f"reading the events of run {run_id!r}", names.event_stream(run_id)
    patience, inbox, pause_s = None, None, _FIRST_PAUSE_S
    try:
        while True:
            try:
                inbox = inbox or await connection.open_inbox()
                found = await inbox.stored(stream, after=after)
            except NoAnswerError as error:
                if inbox is not None:
                    await inbox.drop()
                    inbox = None
                if await connection.info(stream, what=what) is None:
                    raise unknown_stream(run_id) from error
                patience = patience or Patience(connection, what)
                await patience.take(str(error))
                continue
            patience = None
            if found:
                after, pause_s = found[-1].sequence, _FIRST_PAUSE_S
                yield found
            else:
                await anyio.sleep(pause_s)
                pause_s = min(1.4 * pause_s, _LONGEST_PAUSE_S)
    finally:
        if inbox is not None:
            await inbox.drop()


async def _posted(blobs: Blobs, run_id: str, reply: Reply) -> Posted | None:
    """Return an entry; None if no role may publish on its subject (server permissions tie subjects to roles)."""
    subject = reply.headers["Nats-Subject"]
    place = subject.split(".")[3:]
    role = "planner" if place == ["decision"] else next((role for role in _ROLES if place[:-1] == [role]), None)
    if role is None:
        log.warning("event left out: publishing there is not allowed", seq=reply.sequence, subject=subject)
        return None
    payload = await blobs.restore(run_id, reply.payload, reply.headers) if role in _SPILL else reply.payload
    stored = datetime.fromisoformat(reply.headers["Nats-Time-Stamp"]).astimezone(UTC)
    return Posted(
        seq=reply.sequence,
        at=stored.isoformat(timespec="microseconds"),
        # The header is untrusted, but for decisions it is the only id.
        msg_id=reply.headers.get(names.ID, "") if place == ["decision"] else names.id_of(place[-1]),
        payload=payload,
        role=role,
        headers={name: value for name, value in reply.headers.items() if name.islower()},
    )


_ROLES: tuple[Role, ...] = get_args(Role)


class Streams:
    """The event streams of all runs."""

    def __init__(self, connection: Connection, bucket: Bucket, blobs: Blobs) -> None:
        self._connection = connection
        self._bucket = bucket
        self._blobs = blobs

    async def open(self, run_id: str) -> int:
        """See `Bus.open_stream`."""
        blobs = StreamConfig(
            name=names.blob_stream(run_id),
            subjects=(f"ks.blob.{run_id}.*.*",),
            max_msgs_per_subject=1,
            allow_direct=True,
        )
        events = StreamConfig(name=names.event_stream(run_id), subjects=(f"ks.evt.{run_id}.>",), allow_direct=True)
        await self.ensure(blobs)
        state = (await self.ensure(events)).state
        return state.last_seq if state.messages else 0

    async def ensure(self, config: StreamConfig) -> StreamInfo:
        """Create a stream or return an existing one."""
        what = f"opening stream {config.name}"
        found = await self._connection.info(config.name, what=what)
        if found is not None:
            return found
        replicas = await self._bucket.replicas()
        body = msgspec.structs.replace(config, num_replicas=replicas)
        try:
            return await self._connection.make_stream(body, what=what)
        except RefusedError as error:
            found = await self._connection.info(config.name, what=what) if error.code == STREAM_EXISTS else None
            if found is None:
                raise
            return found

    async def publish(
        self,
        run_id: str,
        payload: bytes,
        *,
        msg_id: str,
        role: Role = "planner",
        headers: Mapping[str, str] = NO_HEADERS,
        expected_last_decision: int | None = None,
    ) -> int:
        """See `Bus.publish`."""
        if len(payload) > MAX_EVENT_BYTES:
            raise BusError(f"event {msg_id!r} has {len(payload)} bytes; at most {MAX_EVENT_BYTES} may be published")
        is_decision = expected_last_decision is not None
        subject = names.decision_subject(run_id) if is_decision else names.event_subject(run_id, role, msg_id)
        content, ours = await self._blobs.spill(
            run_id, payload, {**headers, names.ID: msg_id, names.EXPECTED: str(expected_last_decision or 0)}
        )
        stream = names.event_stream(run_id)
        what = f"publishing {msg_id!r} to run {run_id!r}"
        expected, patience = expected_last_decision or 0, Patience(self._connection, what)
        while True:
            try:
                return (await self._connection.store(subject, content, ours, stream=stream, what=what)).seq
            except RefusedError as error:
                if error.code not in WRONG_LAST_SEQUENCE:
                    raise
                last = await self._connection.read(stream, subject, what=what)
                there = 0 if last is None else last.sequence
                if last is not None and last.headers.get(names.ID) == msg_id:
                    return there
                if not proves_nothing(there, expected):
                    raise ConflictError(
                        f"decision {msg_id!r} was made after record {expected}, but record {there} is the last "
                        "decision: another planner writes to this run"
                    ) from error
                await patience.take(str(error))

    async def find(self, run_id: str, msg_id: str, *, role: Role | None = None) -> int | None:
        """See `Bus.find`. A worker's connection searches its role's events, others search all; never decisions."""
        own = self._connection.options.role
        roles = (role,) if role is not None else tuple(each for each in _ROLES if own in (each, "planner"))
        for each in roles or _ROLES:
            subject = names.event_subject(run_id, each, msg_id)
            last = await self._connection.read(
                names.event_stream(run_id), subject, what=f"looking for {msg_id!r} in run {run_id!r}"
            )
            if last is not None:
                return last.sequence
        return None

    async def delete(self, run_id: str) -> None:
        """Delete events and blobs."""
        await self._connection.drop_stream(names.event_stream(run_id))
        await self._connection.drop_stream(names.blob_stream(run_id))


def unknown_stream(run_id: str) -> UnknownQueueError:
    """Return the error for a run without a stream."""
    return UnknownQueueError(f"the event stream of run {run_id!r} was not opened")
