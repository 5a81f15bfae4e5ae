"""The bus over NATS JetStream: implements `actors.bus.base.Bus` with streams, consumers and conditional writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from actors.bus.base import Posted
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.connection import Connection
from actors.bus.nats.entries import Bucket
from actors.bus.nats.names import NatsOptions
from actors.bus.nats.queues import Letters, Pulls, Queues
from actors.bus.nats.streams import Streams, read_events
from actors.bus.nats.wire import ConsumerInfo, Page, RefusedError
from messages.subjects import run_of


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Snapshot of one queue."""

    queue: str
    run_id: str
    waiting: int
    """Jobs that were never delivered."""
    in_hand: int
    """Jobs held by workers, or delayed before redelivery."""
    redelivered: int
    """Jobs in hand that were delivered more than once."""
    oldest_s: float
    """Age of the oldest job; 0 if the queue is empty."""
    dead: int
    """Dead letters of its run so far."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True):
    """Stored data of one run."""

    run_id: str
    events: int
    size_bytes: int
    """Size of events and blobs on one server's disk."""
    last_at: datetime | None
    """Time of the last event; None if there is none."""


class NatsBus:
    """A connection to the bus, created by `open_nats`. It has the methods of `Bus`, implemented by the parts below.

    Differences from the contract: `next_dead_letter` returns a letter again after a restart unless the next call
    settled it; `publish` stores an id once per role and recognises a repeat only of the last decision; `find` searches
    the events of the connection's own role (a planner searches all roles), never decisions.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = bucket = Bucket(connection)
        blobs = Blobs(connection)
        streams = Streams(connection, bucket, blobs)
        letters = Letters(connection, blobs)
        self._queues = queues = Queues(connection, bucket, streams, blobs)
        self._streams = streams
        self._blobs = blobs
        self.over = connection.over
        self.declare_queue = queues.declare
        self.submit = queues.submit
        self.pull = Pulls(connection, queues, blobs, letters).pull
        self.drop_queues = queues.drop
        self.next_dead_letter = letters.next
        self.cancel_run = queues.cancel
        self.open_stream = streams.open
        self.publish = streams.publish
        self.find = streams.find
        self.get = bucket.get
        self.entries = bucket.under
        self.put = bucket.put
        self.delete = bucket.delete
        self.put_blob = blobs.put
        self.get_blob = blobs.get

    async def prepare(self, *, replicas: int = 1) -> None:
        """Create the bucket shared by all runs; needs administrator rights. A repeat changes only the replicas."""
        await self._bucket.prepare(replicas)

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Posted, None]:
        """See `Bus.events`."""
        return read_events(self._connection, self._blobs, run_id, after)

    async def delete_run(self, run_id: str) -> None:
        """See `Bus.delete_run`."""
        await self._queues.drop(run_id)
        await self._streams.delete(run_id)

    async def measure(self, run_id: str | None = None) -> tuple[QueueDepth, ...]:
        """Measure the queues of one run, or of all runs."""
        streams = await self._names_of("ks.job.>" if run_id is None else names.jobs_of(run_id))
        dead: dict[str, int] = {}
        found = []
        for stream in sorted(streams):
            run = run_of(names.queue_of(stream))
            if run not in dead:
                letters = await self._connection.info(names.dead_stream(run), what=f"dead letters of run {run!r}")
                dead[run] = 0 if letters is None else letters.state.last_seq
            depth = await self._measure_one(stream, dead[run])
            found += [] if depth is None else [depth]
        return tuple(found)

    async def kept_runs(self) -> tuple[KeptRun, ...]:
        """Return the server's stored data for each run, ordered by run id."""
        found = []
        for stream in sorted(await self._names_of("ks.evt.>")):
            run_id = stream.removeprefix(names.EVENTS)
            what = f"looking at run {run_id!r}"
            events = await self._connection.info(stream, what=what)
            if events is None:  # gone meanwhile
                continue
            blobs = await self._connection.info(names.blob_stream(run_id), what=what)
            found.append(
                KeptRun(
                    run_id=run_id,
                    events=events.state.messages,
                    size_bytes=events.state.bytes + (0 if blobs is None else blobs.state.bytes),
                    last_at=events.state.last_ts if events.state.messages else None,
                )
            )
        return tuple(found)

    async def _names_of(self, subject: str) -> list[str]:
        streams: list[str] = []
        while True:
            body = {"subject": subject, "offset": len(streams)}
            page = await self._connection.call("STREAM.NAMES", body, Page, what="listing the streams")
            streams += page.streams or ()
            if not page.streams or len(streams) >= page.total:
                return streams

    async def _measure_one(self, stream: str, dead: int) -> QueueDepth | None:
        queue = names.queue_of(stream)
        what = f"measuring queue {queue!r}"
        info = await self._connection.info(stream, what=what)
        if info is None:
            return None
        try:
            request = f"CONSUMER.INFO.{stream}.{names.kind_of(queue)}"
            consumer = await self._connection.call(request, None, ConsumerInfo, what=what)
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


@asynccontextmanager
async def open_nats(options: NatsOptions) -> AsyncIterator[NatsBus]:
    """Connect, and reconnect after every loss of connection, until the block exits.

    Raises:
        BusError: no server could be reached, or it refused access.
    """
    connection = Connection(options)
    await connection.open()
    try:
        yield NatsBus(connection)
    finally:
        await connection.close()
