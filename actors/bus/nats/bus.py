"""The bus over NATS JetStream: streams, consumers and conditions keep the promises of `actors.bus.base.Bus`.

names     what streams and subjects are called        client      the socket, safe to cancel, freeze and kill
streams   publishing events, finding them             connection  questions, answers, tries; inboxes
reader    reading them                                wire        JetStream's requests and answers
queues    declaring, submitting, cancelling           pulls       waiting for jobs
letters   dead letters and the janitor                deliveries  what workers say about jobs
entries   key-value entries                           blobs       contents above the limit of a message
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import get_args

import msgspec

from actors.bus.base import NO_HEADERS, DeadLetter, Delivery, Entry, Posted, QueueSpec
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.connection import Connection
from actors.bus.nats.entries import Bucket
from actors.bus.nats.letters import Letters
from actors.bus.nats.names import NatsOptions
from actors.bus.nats.queues import Pulls, Queues
from actors.bus.nats.streams import Streams, read_events
from actors.bus.nats.wire import ConsumerInfo, Page, RefusedError
from messages.base import Role
from messages.subjects import run_of


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """One queue at one moment."""

    queue: str
    run_id: str
    waiting: int
    """Jobs that were never given out."""
    in_hand: int
    """Jobs that somebody has, or that rest before they are given out again."""
    redelivered: int
    """Of those in hand: given out more than once."""
    oldest_s: float
    """Age of its oldest job; 0 if it has none."""
    dead: int
    """Dead letters that its run has had so far."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one run."""

    run_id: str
    events: int
    size_bytes: int
    """Of its events and blobs together, on the disk of one server."""
    last_at: datetime | None
    """When its last event came; None if there is none."""


async def measure(connection: Connection, run_id: str | None = None) -> tuple[QueueDepth, ...]:
    """Look at the queues of one run, or of all."""
    streams = await _streams(connection, "ks.job.>" if run_id is None else names.jobs_of(run_id))
    dead: dict[str, int] = {}
    found = []
    for stream in sorted(streams):
        run = run_of(names.queue_of(stream))
        if run not in dead:
            letters = await connection.info(names.dead_stream(run), what=f"dead letters of run {run!r}")
            dead[run] = 0 if letters is None else letters.state.last_seq
        depth = await _measure_one(connection, stream, dead[run])
        if depth is not None:
            found.append(depth)
    return tuple(found)


async def kept_runs(connection: Connection) -> tuple[KeptRun, ...]:
    """Look at what is kept of each run."""
    found = []
    for stream in sorted(await _streams(connection, "ks.evt.>")):
        run_id = names.run_of_events(stream)
        what = f"looking at run {run_id!r}"
        events = await connection.info(stream, what=what)
        if events is None:  # gone meanwhile
            continue
        blobs = await connection.info(names.blob_stream(run_id), what=what)
        found.append(
            KeptRun(
                run_id=run_id,
                events=events.state.messages,
                size_bytes=events.state.bytes + (0 if blobs is None else blobs.state.bytes),
                last_at=events.state.last_ts if events.state.messages else None,
            )
        )
    return tuple(found)


async def _streams(connection: Connection, subject: str) -> list[str]:
    """Return the names of all streams that store such subjects: one page after the other."""
    streams: list[str] = []
    while True:
        body = {"subject": subject, "offset": len(streams)}
        page = await connection.call("STREAM.NAMES", body, Page, what="listing the streams")
        streams += page.streams or ()
        if not page.streams or len(streams) >= page.total:
            return streams


async def _measure_one(connection: Connection, stream: str, dead: int) -> QueueDepth | None:
    """Look at one queue; None if it is gone meanwhile."""
    queue = names.queue_of(stream)
    what = f"measuring queue {queue!r}"
    info = await connection.info(stream, what=what)
    if info is None:
        return None
    try:
        request = f"CONSUMER.INFO.{stream}.{names.kind_of(queue)}"
        consumer = await connection.call(request, None, ConsumerInfo, what=what)
    except RefusedError:
        return None
    oldest = info.state.first_ts if info.state.messages else None
    return QueueDepth(
        queue=queue,
        run_id=run_of(queue),
        waiting=consumer.num_pending,
        in_hand=consumer.num_ack_pending,
        redelivered=consumer.num_redelivered,
        oldest_s=0.0 if oldest is None else max(0.0, (datetime.now(UTC) - oldest).total_seconds()),
        dead=dead,
    )


_ROLES: tuple[Role, ...] = get_args(Role)


class NatsBus:
    """A connection to the bus. Many processes have one each; `open_nats` makes it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = Bucket(connection)
        self._blobs = Blobs(connection)
        self._streams = Streams(connection, self._bucket, self._blobs)
        self._letters = Letters(connection, self._blobs)
        self._queues = Queues(connection, self._bucket, self._streams, self._blobs)
        self._pulls = Pulls(connection, self._queues, self._blobs, self._letters.bury)
        role = connection.options.role
        self._roles = tuple(known for known in _ROLES if known == role and role != "planner") or _ROLES

    async def prepare(self, *, replicas: int = 1) -> None:
        """Make what all runs share, with administrator's rights. Again changes nothing but the number of replicas."""
        await self._bucket.prepare(replicas)

    async def over(self) -> str:
        """Wait until the connection is over for good: the server does not let us in any more. Returns why."""
        return await self._connection.over()

    async def measure(self, run_id: str | None = None) -> tuple[QueueDepth, ...]:
        """Look at the queues of one run, or of all."""
        return await measure(self._connection, run_id)

    async def kept_runs(self) -> tuple[KeptRun, ...]:
        """Look at what the server keeps of each run, in the order of their ids."""
        return await kept_runs(self._connection)

    async def declare_queue(self, spec: QueueSpec) -> None:
        """See `Bus.declare_queue`."""
        await self._queues.declare(spec)

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """See `Bus.submit`."""
        return await self._queues.submit(queue, payload, msg_id=msg_id, headers=headers)

    async def pull(self, *queues: str) -> Delivery:
        """See `Bus.pull`."""
        return await self._pulls.pull(queues)

    async def drop_queues(self, run_id: str) -> None:
        """See `Bus.drop_queues`."""
        await self._queues.drop(run_id)

    async def next_dead_letter(self, run_id: str) -> DeadLetter:
        """See `Bus.next_dead_letter`. One that was not settled by the next call is given again after a restart."""
        return await self._letters.next(run_id, self._queues)

    async def open_stream(self, run_id: str) -> int:
        """See `Bus.open_stream`."""
        return await self._streams.open(run_id)

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
        """See `Bus.publish`. An id is stored once per role; of decisions only the last one is known again."""
        return await self._streams.publish(
            run_id, payload, msg_id=msg_id, role=role, headers=headers, expected_last_decision=expected_last_decision
        )

    async def find(self, run_id: str, msg_id: str, *, role: Role | None = None) -> int | None:
        """See `Bus.find`. A worker's connection looks among what its role has published; nobody among decisions."""
        return await self._streams.find(run_id, msg_id, roles=self._roles if role is None else (role,))

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Posted, None]:
        """See `Bus.events`."""
        return read_events(self._connection, self._blobs, run_id, after)

    async def cancel_run(self, run_id: str) -> None:
        """See `Bus.cancel_run`."""
        await self._queues.cancel(run_id)

    async def get(self, key: str) -> Entry | None:
        """See `Bus.get`."""
        return await self._bucket.get(key)

    async def entries(self, prefix: str) -> Mapping[str, Entry]:
        """See `Bus.entries`."""
        return await self._bucket.under(prefix)

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        """See `Bus.put`."""
        return await self._bucket.put(key, value, revision=revision, ttl_s=ttl_s)

    async def delete(self, key: str, *, revision: int) -> None:
        """See `Bus.delete`."""
        await self._bucket.delete(key, revision=revision)

    async def put_blob(self, run_id: str, content: bytes) -> str:
        """See `Bus.put_blob`."""
        return await self._blobs.put(run_id, content)

    async def get_blob(self, run_id: str, digest: str) -> bytes:
        """See `Bus.get_blob`."""
        return await self._blobs.get(run_id, digest)

    async def delete_run(self, run_id: str) -> None:
        """See `Bus.delete_run`."""
        await self._queues.drop(run_id)
        await self._streams.delete(run_id)


@asynccontextmanager
async def open_nats(options: NatsOptions) -> AsyncIterator[NatsBus]:
    """Connect, and be connected again whenever the connection is lost, until the block is left.

    Raises:
        BusError: no server could be reached, or it does not let us in.
    """
    connection = Connection(options)
    await connection.open()
    try:
        yield NatsBus(connection)
    finally:
        await connection.close()
