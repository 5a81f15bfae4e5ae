"""Event streams: publishing with exact de-duplication, the planner's fence, and ordered reading without gaps.

A reader has a consumer of its own without acknowledgements and asks it for batches ahead of need. A missing number, a
lost connection or silence lead to a new consumer behind the last entry read.

An event's subject is made of its publisher's role and its id, and it is stored on the condition that the subject is
empty: an id is stored once for the life of the stream, and no role can use up another's ids. Decisions share one
subject; each is stored on the condition that the last one is the one its planner knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import get_args
from uuid import uuid4

import anyio
import msgspec
import structlog

from actors.bus.base import MAX_EVENT_BYTES, NO_HEADERS, ConflictError, Posted, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection, Inbox, NoAnswerError, Patience, decoded
from actors.bus.nats.entries import Bucket
from actors.bus.nats.wire import (
    STREAM_EXISTS,
    STREAM_NOT_FOUND,
    TRANSIENT,
    WRONG_LAST_SEQUENCE,
    ConsumerConfig,
    ConsumerInfo,
    Receipt,
    RefusedError,
    StreamConfig,
    StreamInfo,
    proves_nothing,
    receipt_of,
)
from messages.base import BusError, Role

log = structlog.get_logger(__name__)

_BATCH = 512
_BATCH_BYTES = 8 << 20
"""Most that one request brings; a reader holds two requests' worth at most."""
_LISTEN_S = 5.0
"""Life of a request at the server."""
_PULSE_S = 1.0
"""Interval of the server's signs of life while there is nothing to send."""
_SILENCE_S = 2.5
"""Silence after which request or consumer count as lost with a server."""
_MADE_S = 2.0
"""Time for making a consumer. A cluster may give it to a dead server; then one of another name is made."""
_FORGOTTEN_NS = 30_000_000_000
"""Idle time after which the server drops a reader's consumer."""
_NEXT = msgspec.json.encode(
    {
        "batch": _BATCH,
        "max_bytes": _BATCH_BYTES,
        "expires": int(_LISTEN_S * 1e9),
        "idle_heartbeat": int(_PULSE_S * 1e9),
    }
)
_LOOK_S = 0.25
"""Interval between looks of readers without a consumer."""
WATCHER = "watcher"
"""The role with read access only."""
_SPILL: frozenset[Role] = frozenset({"planner", "coder", "builder"})
"""Roles that may put blobs; blobs named by others cannot exist."""


class _GapError(Exception):
    """Something was not delivered, or the server has forgotten the consumer."""


async def read_events(connection: Connection, blobs: Blobs, run_id: str, after: int) -> AsyncGenerator[Posted, None]:
    """Yield every entry behind `after`, then follow for ever; see `Bus.events`."""
    what, patience = f"reading the events of run {run_id!r}", None
    while True:
        # Consumers can deliver to any subject: who may only read may make none.
        feed = (_Looks if connection.options.role == WATCHER else _Feed)(connection, run_id, after)
        try:
            await feed.open()
            patience = None
            while True:
                reply, receipt = await feed.next()
                role = _publisher(reply)
                after = receipt.stream_seq
                if role is None:
                    log.warning("event left out: publishing there is not allowed", seq=after, subject=reply.subject)
                    continue
                payload = reply.payload
                if role in _SPILL:
                    payload = await blobs.restore(run_id, payload, reply.headers)
                yield _posted(reply, receipt, role, payload)
        except (_GapError, NoAnswerError) as error:
            await connection.ready(what)
            if not feed.has_delivered:
                patience = patience or Patience(connection, what)
                await patience.take(str(error))
        finally:
            await feed.close()


class _Feed:
    """One consumer, for as long as it delivers without a gap."""

    def __init__(self, connection: Connection, run_id: str, after: int) -> None:
        self._connection = connection
        self._run_id = run_id
        self._after = after
        self._stream = names.event_stream(run_id)
        self._name = f"reader-{uuid4().hex[:16]}"
        self._inbox: Inbox | None = None
        self._last = 0
        self._owed = 0
        """Requested messages that have not come."""

    @property
    def has_delivered(self) -> bool:
        return self._last > 0

    async def open(self) -> None:
        """Make the consumer. Raises `UnknownQueueError` without a stream, `NoAnswerError` if it was not made."""
        config = ConsumerConfig(
            name=self._name,
            ack_policy="none",
            deliver_policy="by_start_sequence",
            opt_start_seq=self._after + 1,
            inactive_threshold=_FORGOTTEN_NS,
            mem_storage=True,
            num_replicas=1,
        )
        body = {"stream_name": self._stream, "config": config, "action": "create"}
        request = f"CONSUMER.CREATE.{self._stream}.{self._name}"
        reply = await self._connection.ask(f"$JS.API.{request}", msgspec.json.encode(body), within_s=_MADE_S)
        if reply.status:
            raise NoAnswerError(f"JetStream is not there ({reply.status} {reply.description})")
        fault = decoded(reply.payload, ConsumerInfo, request).error
        if fault is not None and fault.err_code == STREAM_NOT_FOUND:
            raise unknown_stream(self._run_id)
        if fault is not None:
            text = f"the server says {fault.description!r} ({fault.err_code})"
            may_pass = fault.err_code in TRANSIENT or fault.code == 503
            raise NoAnswerError(text) if may_pass else RefusedError(text, fault, is_retry=False)
        self._inbox = await self._connection.open_inbox()

    async def next(self) -> tuple[Reply, Receipt]:
        """Wait for the next entry. Raises `_GapError` or `NoAnswerError`: go on with another feed."""
        if self._inbox is None:
            raise _GapError
        while True:
            if self._owed <= _BATCH // 2:
                await self._inbox.ask(f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}", _NEXT)
                self._owed += _BATCH
            reply = await self._inbox.take(_SILENCE_S)
            if reply.status:
                self._settle(reply)
                continue
            receipt = receipt_of(reply.reply_to)
            if receipt is None or receipt.consumer_seq != self._last + 1:
                raise _GapError
            self._last += 1
            self._owed -= 1
            return reply, receipt

    async def close(self) -> None:
        if self._inbox is not None:
            await self._inbox.drop()

    def _settle(self, reply: Reply) -> None:
        """Take a request as ended: its time is over, or it brought enough bytes. 100 is a sign of life."""
        if reply.status == "100":
            return
        is_over = reply.status == "408" or (reply.status == "409" and "max" in reply.description.lower())
        if not is_over:
            raise _GapError
        self._owed -= int(reply.headers.get("Nats-Pending-Messages", self._owed))


class _Looks:
    """Reads stored messages again and again, without a consumer."""

    def __init__(self, connection: Connection, run_id: str, after: int) -> None:
        self._connection = connection
        self._run_id = run_id
        self._last = after
        self._stream = names.event_stream(run_id)
        self._inbox: Inbox | None = None
        self._found: deque[Reply] = deque()
        self.has_delivered = False

    async def open(self) -> None:
        if await self._connection.info(self._stream, what=f"reading the events of {self._run_id!r}") is None:
            raise unknown_stream(self._run_id)
        self._inbox = await self._connection.open_inbox()

    async def next(self) -> tuple[Reply, Receipt]:
        """Wait for the next entry. Raises `NoAnswerError`: go on with another one."""
        while not self._found:
            await self._look()
            if not self._found:
                await anyio.sleep(_LOOK_S)
        found = self._found.popleft()
        self._last = found.sequence
        self.has_delivered = True
        stored = datetime.fromisoformat(found.headers["Nats-Time-Stamp"])
        receipt = Receipt(self._stream, 1, self._last, 0, round(stored.timestamp() * 1e6) * 1000)
        return msgspec.structs.replace(found, subject=found.headers["Nats-Subject"]), receipt

    async def close(self) -> None:
        if self._inbox is not None:
            await self._inbox.drop()

    async def _look(self) -> None:
        if self._inbox is None:
            raise NoAnswerError("it was not opened")
        body = {"seq": self._last + 1, "next_by_subj": ">", "batch": _BATCH, "max_bytes": _BATCH_BYTES}
        await self._inbox.ask(f"$JS.API.DIRECT.GET.{self._stream}", msgspec.json.encode(body))
        while True:
            reply = await self._inbox.take(_LISTEN_S)
            if not reply.status:
                self._found.append(reply)
            elif reply.status in ("204", "404"):
                return
            else:
                raise NoAnswerError(f"{reply.status} {reply.description}")


def _publisher(reply: Reply) -> Role | None:
    """Return the publisher: the server's permissions tie the subject to the role."""
    parts = reply.subject.split(".")
    if len(parts) == 4 and parts[3] == "decision":
        return "planner"
    return next((role for role in _ROLES if len(parts) == 5 and role == parts[3]), None)


def _posted(reply: Reply, receipt: Receipt, role: Role, payload: bytes) -> Posted:
    token = reply.subject.rsplit(".", 1)[-1]
    seconds, rest_ns = divmod(receipt.stored_ns, 1_000_000_000)
    stamp = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest_ns // 1000)
    return Posted(
        seq=receipt.stream_seq,
        at=stamp.isoformat(timespec="microseconds"),
        # The header may be anything, but for decisions it is the only id.
        msg_id=reply.headers.get(names.ID, "") if token == "decision" else names.id_of(token),  # noqa: S105
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
        """See `Bus.find`. A worker's connection looks among its role's events, others among all; never decisions."""
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
        """Forget events and blobs."""
        await self._connection.drop_stream(names.event_stream(run_id))
        await self._connection.drop_stream(names.blob_stream(run_id))


def unknown_stream(run_id: str) -> UnknownQueueError:
    """Return the error of a run without a stream."""
    return UnknownQueueError(f"the event stream of run {run_id!r} was not opened")
