"""Event streams: publishing with exact de-duplication, the planner's fence, and finding by id.

An event has a subject of its own, made of its publisher's role and its id, and is published on the condition that
nothing is there yet. So an id is stored once for as long as the stream lives, whatever restarts, and nobody can use up
the ids of another role. All decisions share one subject; each is published on the condition that the one before it is
the one that its planner knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec

from actors.bus.base import MAX_EVENT_BYTES, ConflictError, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection
from actors.bus.nats.entries import Bucket
from actors.bus.nats.link import Patience
from actors.bus.nats.wire import (
    STREAM_EXISTS,
    WRONG_LAST_SEQUENCE,
    RefusedError,
    StreamConfig,
    StreamInfo,
    proves_nothing,
)
from messages.base import Role
from messages.errors import BusError

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
            subjects=(names.blobs_of(run_id),),
            max_msgs_per_subject=1,
            allow_direct=True,
        )
        events = StreamConfig(name=names.event_stream(run_id), subjects=(names.events_of(run_id),), allow_direct=True)
        await self.ensure(blobs)
        state = (await self.ensure(events)).state
        return state.last_seq if state.messages else 0

    async def ensure(self, config: StreamConfig) -> StreamInfo:
        """Make a stream, or find it as it is."""
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
        role: Role,
        headers: Mapping[str, str],
        expected_last_decision: int | None,
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
                there = 0 if last is None else _sequence(last)
                if last is not None and last.headers.get(names.ID) == msg_id:
                    return there
                if not proves_nothing(there, expected):
                    raise ConflictError(
                        f"decision {msg_id!r} was made after record {expected}, but record {there} is the last "
                        "decision: another planner writes to this run"
                    ) from error
                await patience.take(str(error))

    async def find(self, run_id: str, msg_id: str, *, roles: tuple[Role, ...] = _ROLES) -> int | None:
        """See `Bus.find`. Decisions are not looked for."""
        stream = names.event_stream(run_id)
        for role in roles:
            subject = names.event_subject(run_id, role, msg_id)
            last = await self._connection.read(stream, subject, what=f"looking for {msg_id!r} in run {run_id!r}")
            if last is not None:
                return _sequence(last)
        return None

    async def delete(self, run_id: str) -> None:
        """Forget events and blobs."""
        await self._connection.drop_stream(names.event_stream(run_id))
        await self._connection.drop_stream(names.blob_stream(run_id))


def unknown_stream(run_id: str) -> UnknownQueueError:
    """Return the error of a run whose stream is not there."""
    return UnknownQueueError(f"the event stream of run {run_id!r} was not opened")


def _sequence(reply: Reply) -> int:
    return int(reply.headers["Nats-Sequence"])
