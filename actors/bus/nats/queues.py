"""Work queues: one stream for each, with one durable consumer that all its workers pull from.

The subject of a job holds its id, and a job is stored on the condition that its subject is empty: so an id is there
once while it is unacknowledged, and may come again afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import uuid4

import msgspec

from actors.bus.base import (
    MAX_JOB_BYTES,
    CancelledRunError,
    ConflictError,
    QueueFullError,
    QueueSpec,
    UnknownQueueError,
)
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.connection import Connection
from actors.bus.nats.entries import Bucket
from actors.bus.nats.link import NoAnswerError
from actors.bus.nats.streams import Streams
from actors.bus.nats.wire import (
    CONSUMER_NOT_FOUND,
    MESSAGE_TOO_LARGE,
    STREAM_NOT_FOUND,
    TOO_MANY_MESSAGES,
    WRONG_LAST_SEQUENCE,
    ConsumerConfig,
    ConsumerInfo,
    Nothing,
    Page,
    RefusedError,
    StreamConfig,
    StreamInfo,
)
from messages.errors import BusError
from messages.subjects import run_of

_SPEC = "ksearch_spec"
_DUPLICATES_NS = 120_000_000_000
"""How long a try to submit is remembered; our patience is shorter."""
_WAITING = 16_384
"""Pulls that may wait at one queue."""


class Queues:
    """The queues of all runs."""

    def __init__(self, connection: Connection, bucket: Bucket, streams: Streams, blobs: Blobs) -> None:
        self._connection = connection
        self._bucket = bucket
        self._streams = streams
        self._blobs = blobs
        self._specs: dict[str, QueueSpec] = {}

    async def declare(self, spec: QueueSpec) -> None:
        """See `Bus.declare_queue`."""
        stream, kind = names.job_stream(spec.name), names.kind_of(spec.name)
        config = StreamConfig(
            name=stream,
            subjects=(f"{spec.name}.*",),
            retention="workqueue",
            discard="new",
            max_msgs=spec.max_jobs,
            max_msg_size=1 if await self.is_cancelled(spec.run_id) else -1,
            duplicate_window=_DUPLICATES_NS,
            # A late word about a job of a queue that was dropped must not meet a job of this one.
            first_seq=time.time_ns() // 1_000_000,
            allow_direct=True,
            metadata={_SPEC: msgspec.json.encode(spec).decode()},
        )
        there = _spec_of(await self._streams.ensure(config), spec.name)
        if there != spec:
            raise ConflictError(f"queue {spec.name!r} was declared otherwise: {there!r}, now {spec!r}")
        await self._watch_deaths(spec.run_id, stream, kind)
        consumer = ConsumerConfig(
            name=kind,
            durable_name=kind,
            ack_policy="explicit",
            ack_wait=int(spec.ack_wait_s * 1e9),
            max_deliver=spec.max_deliver,
            max_ack_pending=-1,
            max_waiting=_WAITING,
        )
        body = {"stream_name": stream, "config": consumer, "action": ""}
        request = f"CONSUMER.CREATE.{stream}.{kind}"
        await self._connection.call(request, body, ConsumerInfo, what=f"declaring {spec.name!r}")
        self._specs[spec.name] = spec

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str]) -> bool:
        """See `Bus.submit`."""
        if len(payload) > MAX_JOB_BYTES:
            raise BusError(f"job {msg_id!r} has {len(payload)} bytes; at most {MAX_JOB_BYTES} may be submitted")
        subject, stream = f"{queue}.{names.token_of(msg_id)}", names.job_stream(queue)
        attempt = uuid4().hex
        ours = {**headers, names.ID: msg_id, names.MESSAGE_ID: attempt, names.EXPECTED: "0"}
        content, ours = await self._blobs.spill(run_of(queue), payload, ours)
        what = f"submitting {msg_id!r} to {queue!r}"
        try:
            await self._connection.store(subject, content, ours, stream=stream, what=what)
        except RefusedError as error:
            if not await self._is_ours(error, queue, subject, attempt):
                return False
        await self._ring(queue)
        return True

    async def spec_of(self, queue: str) -> QueueSpec:
        """Return how a queue was declared.

        Raises:
            UnknownQueueError: it is not there.
        """
        known = self._specs.get(queue)
        if known is None:
            info = await self._connection.info(names.job_stream(queue), what=f"looking for queue {queue!r}")
            if info is None:
                raise UnknownQueueError(f"queue {queue!r} was not declared")
            known = self._specs[queue] = _spec_of(info, queue)
        return known

    async def check(self, queue: str) -> None:
        """Look whether a queue is still there and can be pulled from.

        Raises:
            UnknownQueueError: it is not.
        """
        self._specs.pop(queue, None)
        await self.spec_of(queue)
        request = f"CONSUMER.INFO.{names.job_stream(queue)}.{names.kind_of(queue)}"
        try:
            await self._connection.call(request, None, ConsumerInfo, what=f"looking for queue {queue!r}")
        except RefusedError as error:
            if error.code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
                raise UnknownQueueError(f"queue {queue!r} was not declared to its end") from error
            raise

    async def drop(self, run_id: str) -> None:
        """See `Bus.drop_queues`."""
        for stream in await self.streams_of(run_id):
            self._specs.pop(names.queue_of(stream), None)
            await self._connection.drop_stream(stream)
        await self._connection.drop_stream(names.dead_stream(run_id))
        if await self.is_cancelled(run_id):
            await self._bucket.clear(names.tombstone(run_id))

    async def cancel(self, run_id: str) -> None:
        """See `Bus.cancel_run`."""
        what = f"cancelling run {run_id!r}"
        await self._bucket.mark(names.tombstone(run_id))
        for stream in await self.streams_of(run_id):
            info = await self._connection.info(stream, what=what)
            if info is None:
                continue
            # Nothing is that small: whoever submits is refused, at no cost for those who submit to other queues.
            closed = {**info.config, "max_msg_size": 1}
            await self._connection.call(f"STREAM.UPDATE.{stream}", closed, StreamInfo, what=what)
            await self._connection.call(f"STREAM.PURGE.{stream}", None, Nothing, what=what)

    async def is_cancelled(self, run_id: str) -> bool:
        """Say whether a run has a tombstone."""
        return await self._bucket.get(names.tombstone(run_id)) is not None

    async def streams_of(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the run's job streams."""
        body = {"subject": names.jobs_of(run_id), "offset": 0}
        found = await self._connection.call("STREAM.NAMES", body, Page, what=f"the queues of run {run_id!r}")
        return tuple(name for name in found.streams or () if name.startswith(names.JOBS))

    async def _is_ours(self, error: RefusedError, queue: str, subject: str, attempt: str) -> bool:
        """Say whether a refused job is there by an earlier try of ours; False if it was there before.

        Raises:
            BusError: it was refused for another reason.
        """
        if error.code == TOO_MANY_MESSAGES:
            raise QueueFullError(f"queue {queue!r} is full; submit again later") from error
        if error.code == MESSAGE_TOO_LARGE and await self.is_cancelled(run_of(queue)):
            raise CancelledRunError(f"run {run_of(queue)!r} was cancelled") from error
        if error.code not in WRONG_LAST_SEQUENCE:
            raise error
        if not error.is_retry:
            return False
        last = await self._connection.read(names.job_stream(queue), subject, what=str(error))
        return last is not None and last.headers.get(names.MESSAGE_ID) == attempt

    async def _ring(self, queue: str) -> None:
        """Wake those who wait for several queues; they look once a second besides."""
        try:
            await self._connection.tell(names.bell(names.kind_of(queue)), queue.encode())
        except NoAnswerError:
            return

    async def _watch_deaths(self, run_id: str, stream: str, kind: str) -> None:
        """Have the server's word about jobs that were delivered too often kept among the run's dead letters."""
        subject = names.advisory(stream, kind)
        letters = StreamConfig(
            name=names.dead_stream(run_id),
            subjects=(names.dead_letters_of(run_id), subject),
            duplicate_window=_DUPLICATES_NS,
            allow_direct=True,
        )
        while True:
            found = await self._streams.ensure(letters)
            if subject in found.subjects:
                return
            changed = {**found.config, "subjects": (*found.subjects, subject)}
            what = f"watching {stream}"
            await self._connection.call(f"STREAM.UPDATE.{letters.name}", changed, StreamInfo, what=what)


def _spec_of(info: StreamInfo, queue: str) -> QueueSpec:
    """Return the specification that was noted when the stream was made.

    Raises:
        BusError: there is none.
    """
    try:
        return msgspec.json.decode(info.metadata.get(_SPEC, ""), type=QueueSpec)
    except msgspec.DecodeError as error:
        raise BusError(f"the stream of queue {queue!r} was not made by ksearch: {error}") from error
