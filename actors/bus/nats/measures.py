"""How full the queues are and what is kept of runs, for people and for metrics."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from actors.bus.nats import names
from actors.bus.nats.connection import Connection
from actors.bus.nats.wire import ConsumerInfo, Page, RefusedError
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
