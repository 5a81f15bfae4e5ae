"""The bus of one process: real queue semantics without a server, for local runs and for tests.

Payloads are bytes here too, so no two actors ever share an object. Event streams are as durable as the store that
`open_store` gives; queues, dead letters and key-value entries live as long as the process: a run that is resumed
submits again what its journal says is unanswered.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from hashlib import sha256

import anyio
from anyio.lowlevel import checkpoint

from actors.bus.base import (
    MAX_BLOB_BYTES,
    MAX_JOB_BYTES,
    NO_HEADERS,
    CancelledRunError,
    ConflictError,
    DeadLetter,
    Delivery,
    Entry,
    Posted,
    QueueSpec,
    UnknownBlobError,
    UnknownQueueError,
)
from actors.bus.entries import Entries
from actors.bus.queue import Job, WorkQueue
from actors.bus.stream import EventStore, EventStream
from actors.bus.waiting import Line, Place, first_of
from actors.clock import utc_now
from messages.base import BusError, Role


class MemoryBus:
    """Keeps the promises of `actors.bus.base.Bus` within one event loop."""

    def __init__(self, open_store: Callable[[str], EventStore], *, now: Callable[[], str] = utc_now) -> None:
        """Make an empty bus.

        Args:
            open_store: makes or finds the store of a run's event stream, by run id.
            now: stamps of events.
        """
        self._open_store = open_store
        self._now = now
        self._streams: dict[str, EventStream] = {}
        self._queues: dict[str, _Queue] = {}
        self._runs: dict[str, _Run] = {}
        self._entries = Entries()
        self._blobs: dict[str, dict[str, bytes]] = {}

    async def declare_queue(self, spec: QueueSpec) -> None:
        """See `Bus.declare_queue`."""
        await checkpoint()
        queue = self._queues.get(spec.name)
        if queue is None:
            run = self._run(spec.run_id)
            queue = self._queues[spec.name] = _Queue(spec, run)
            run.queues.append(queue)
        elif queue.jobs.spec != spec:
            raise ConflictError(f"queue {spec.name!r} was declared otherwise: {queue.jobs.spec!r}, now {spec!r}")

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """See `Bus.submit`."""
        await checkpoint()
        found = self._queue(queue)
        if len(payload) > MAX_JOB_BYTES:
            raise BusError(f"job {msg_id!r} has {len(payload)} bytes; at most {MAX_JOB_BYTES} may be submitted")
        found.run.check()
        is_new = found.jobs.put(msg_id, payload, anyio.current_time(), headers)
        found.changed()
        return is_new

    async def pull(self, *queues: str) -> Delivery:
        """See `Bus.pull`. Of those who wait for a queue the first that came is served first."""
        return await first_of([self._queue(queue).place for queue in queues])

    async def drop_queues(self, run_id: str) -> None:
        """See `Bus.drop_queues`."""
        await checkpoint()
        run = self._run(run_id)
        for queue in run.queues:
            queue.drop()
            del self._queues[queue.jobs.spec.name]
        run.queues.clear()
        run.cancelled = False

    async def next_dead_letter(self, run_id: str) -> DeadLetter:
        """See `Bus.next_dead_letter`."""
        run = self._run(run_id)
        return await first_of([run.place])

    async def open_stream(self, run_id: str) -> int:
        """See `Bus.open_stream`. Reads the whole store at once, without a pause: call it before there is other work."""
        await checkpoint()
        stream = self._streams.get(run_id)
        if stream is None:
            stream = self._streams[run_id] = EventStream(self._open_store(run_id), now=self._now)
        return stream.last_seq

    async def publish(
        self,
        run_id: str,
        payload: bytes,
        *,
        msg_id: str,
        role: Role = "planner",  # noqa: ARG002 - all publishers are this process
        headers: Mapping[str, str] = NO_HEADERS,
        expected_last_decision: int | None = None,
    ) -> int:
        """See `Bus.publish`."""
        return await self._stream(run_id).publish(payload, msg_id, expected_last_decision, headers)

    async def find(self, run_id: str, msg_id: str, *, role: Role | None = None) -> int | None:  # noqa: ARG002 - as above
        """See `Bus.find`."""
        await checkpoint()
        return self._stream(run_id).seq_of(msg_id)

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Posted, None]:
        """See `Bus.events`."""
        return self._stream(run_id).read(after)

    async def cancel_run(self, run_id: str) -> None:
        """See `Bus.cancel_run`."""
        await checkpoint()
        run = self._run(run_id)
        run.cancelled = True
        for queue in run.queues:
            queue.jobs.clear()
            queue.changed()

    async def get(self, key: str) -> Entry | None:
        """See `Bus.get`."""
        await checkpoint()
        return self._entries.get(key, anyio.current_time())

    async def entries(self, prefix: str) -> Mapping[str, Entry]:
        """See `Bus.entries`."""
        await checkpoint()
        return self._entries.under(prefix, anyio.current_time())

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        """See `Bus.put`."""
        await checkpoint()
        return self._entries.put(key, value, revision, ttl_s, anyio.current_time())

    async def delete(self, key: str, *, revision: int) -> None:
        """See `Bus.delete`."""
        await checkpoint()
        self._entries.delete(key, revision, anyio.current_time())

    async def put_blob(self, run_id: str, content: bytes) -> str:
        """See `Bus.put_blob`."""
        await checkpoint()
        self._stream(run_id)
        if len(content) > MAX_BLOB_BYTES:
            raise BusError(f"a blob of {len(content)} bytes; at most {MAX_BLOB_BYTES} may be kept")
        digest = sha256(content).hexdigest()
        self._blobs.setdefault(run_id, {})[digest] = content
        return digest

    async def get_blob(self, run_id: str, digest: str) -> bytes:
        """See `Bus.get_blob`."""
        await checkpoint()
        try:
            return self._blobs.get(run_id, {})[digest]
        except KeyError:
            raise UnknownBlobError(f"run {run_id!r} has no blob {digest!r}") from None

    async def delete_run(self, run_id: str) -> None:
        """See `Bus.delete_run`. What the run's store keeps on disk is the store's owner's to delete."""
        await self.drop_queues(run_id)
        stream = self._streams.pop(run_id, None)
        if stream is not None:
            stream.close()
        self._runs.pop(run_id, None)
        self._blobs.pop(run_id, None)

    def close(self) -> None:
        """Let go of all stores; the bus cannot be used afterwards."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._queues.clear()

    def _run(self, run_id: str) -> _Run:
        return self._runs.setdefault(run_id, _Run(run_id))

    def _queue(self, name: str) -> _Queue:
        try:
            return self._queues[name]
        except KeyError:
            raise UnknownQueueError(f"queue {name!r} was not declared") from None

    def _stream(self, run_id: str) -> EventStream:
        try:
            return self._streams[run_id]
        except KeyError:
            raise UnknownQueueError(f"the event stream of run {run_id!r} was not opened") from None


class _Run:
    """What a run's queues share: whether they still count, and who waits for their dead letters."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.cancelled = False
        self.queues: list[_Queue] = []
        self.place = Place(Line(), self._take_dead_letter, self._next_due)

    def check(self) -> None:
        if self.cancelled:
            raise CancelledRunError(f"run {self.run_id!r} was cancelled")

    def _take_dead_letter(self) -> DeadLetter | None:
        now = anyio.current_time()
        for queue in self.queues:
            letter = queue.jobs.take_dead_letter(now)
            if letter is not None:
                return letter
        return None

    def _next_due(self) -> float | None:
        return min((due for queue in self.queues if (due := queue.jobs.next_due()) is not None), default=None)


class _Queue:
    """A work queue, those who wait for its jobs, and its run."""

    def __init__(self, spec: QueueSpec, run: _Run) -> None:
        self.jobs = WorkQueue(spec)
        self.place = Place(Line(), self._take, self.jobs.next_due)
        self.run = run
        self._is_dropped = False

    def changed(self) -> None:
        """Have the first in both lines look again."""
        self.place.line.call()
        self.run.place.line.call()

    def drop(self) -> None:
        """Forget all jobs; who waits for one, or has one, is told."""
        self._is_dropped = True
        self.jobs.clear()
        self.changed()

    def check(self) -> None:
        """Raise if nobody wants the jobs any more."""
        self.run.check()
        if self._is_dropped:
            raise CancelledRunError(f"queue {self.jobs.spec.name!r} was dropped")

    def _take(self) -> _MemoryDelivery | None:
        if self._is_dropped:
            raise UnknownQueueError(f"queue {self.jobs.spec.name!r} was dropped")
        job = self.jobs.take(anyio.current_time())
        if job is None:
            return None
        self.run.place.line.call()
        return _MemoryDelivery(self, job)


class _MemoryDelivery:
    """A job in a worker's hands."""

    def __init__(self, queue: _Queue, job: Job) -> None:
        self._queue = queue
        self._job = job
        self._attempt = job.deliveries

    @property
    def queue(self) -> str:
        return self._queue.jobs.spec.name

    @property
    def payload(self) -> bytes:
        return self._job.payload

    @property
    def msg_id(self) -> str:
        return self._job.msg_id

    @property
    def headers(self) -> Mapping[str, str]:
        return self._job.headers

    @property
    def attempt(self) -> int:
        return self._attempt

    async def ack(self) -> None:
        await checkpoint()
        self._queue.jobs.finish(self._job, anyio.current_time())
        self._queue.changed()

    async def nak(self, delay_s: float = 0.0) -> None:
        await checkpoint()
        self._queue.jobs.hand_back(self._job, self._attempt, delay_s, anyio.current_time())
        self._queue.changed()

    async def term(self, reason: str) -> None:
        await checkpoint()
        self._queue.jobs.give_up(self._job, self._attempt, reason, anyio.current_time())
        self._queue.changed()

    async def in_progress(self) -> None:
        await checkpoint()
        self._queue.check()
        self._queue.jobs.refresh(self._job, self._attempt, anyio.current_time())
