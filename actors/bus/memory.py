"""The bus of one process: real queue semantics without a server, for local runs and for tests.

Payloads are bytes here too, so no two actors ever share an object. Event streams are as durable as the store that
`open_store` gives; queues, dead letters and key-value entries live as long as the process: a run that is resumed
submits again what its journal says is unanswered.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable

import anyio
from anyio.lowlevel import checkpoint

from actors.bus.base import (
    MAX_JOB_BYTES,
    CancelledRunError,
    ConflictError,
    DeadLetter,
    Delivery,
    Entry,
    Posted,
    QueueSpec,
    UnknownQueueError,
)
from actors.bus.line import Line
from actors.bus.queue import Job, WorkQueue
from actors.bus.store import EventStore
from actors.bus.stream import EventStream
from actors.clock import utc_now
from messages.errors import BusError

_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


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
        self._entries: dict[str, Entry] = {}
        self._revision = 0

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

    async def submit(self, queue: str, payload: bytes, *, msg_id: str) -> bool:
        """See `Bus.submit`."""
        await checkpoint()
        found = self._queue(queue)
        if len(payload) > MAX_JOB_BYTES:
            raise BusError(f"job {msg_id!r} has {len(payload)} bytes; at most {MAX_JOB_BYTES} may be submitted")
        found.run.check()
        is_new = found.jobs.put(msg_id, payload, anyio.current_time())
        found.changed()
        return is_new

    async def pull(self, queue: str) -> Delivery:
        """See `Bus.pull`. Waiting workers are served in the order in which they came."""
        found = self._queue(queue)
        return await found.line.wait_for(found.take, found.jobs.next_due)

    async def next_dead_letter(self, run_id: str) -> DeadLetter:
        """See `Bus.next_dead_letter`."""
        run = self._run(run_id)
        return await run.line.wait_for(run.take_dead_letter, run.next_due)

    async def open_stream(self, run_id: str) -> int:
        """See `Bus.open_stream`. Reads the whole store at once, without a pause: call it before there is other work."""
        await checkpoint()
        stream = self._streams.get(run_id)
        if stream is None:
            stream = self._streams[run_id] = EventStream(self._open_store(run_id), now=self._now)
        return stream.last_seq

    async def publish(
        self, run_id: str, payload: bytes, *, msg_id: str, expected_last_decision: int | None = None
    ) -> int:
        """See `Bus.publish`."""
        return await self._stream(run_id).publish(payload, msg_id, expected_last_decision)

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
        return self._entries.get(key)

    async def put(self, key: str, value: bytes, *, revision: int) -> int:
        """See `Bus.put`. Revisions count the writes of the whole bus, as those of a JetStream bucket do."""
        await checkpoint()
        if _KEY.fullmatch(key) is None:
            raise BusError(f"{key!r} is no key: use letters, digits and any of -/_=.")
        if len(value) > MAX_JOB_BYTES:
            raise BusError(f"entry {key!r} has {len(value)} bytes; at most {MAX_JOB_BYTES} may be put")
        self._check_revision(key, revision)
        self._revision += 1
        self._entries[key] = Entry(value=value, revision=self._revision)
        return self._revision

    async def delete(self, key: str, *, revision: int) -> None:
        """See `Bus.delete`."""
        await checkpoint()
        self._check_revision(key, revision)
        self._entries.pop(key, None)

    def close(self) -> None:
        """Let go of all stores; the bus cannot be used afterwards."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._queues.clear()

    def _check_revision(self, key: str, revision: int) -> None:
        entry = self._entries.get(key)
        last = 0 if entry is None else entry.revision
        if last != revision:
            raise ConflictError(f"entry {key!r} has revision {last}, not {revision}: somebody else wrote first")

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
        self.line = Line()

    def check(self) -> None:
        if self.cancelled:
            raise CancelledRunError(f"run {self.run_id!r} was cancelled")

    def take_dead_letter(self) -> DeadLetter | None:
        now = anyio.current_time()
        for queue in self.queues:
            letter = queue.jobs.take_dead_letter(now)
            if letter is not None:
                return letter
        return None

    def next_due(self) -> float | None:
        return min((due for queue in self.queues if (due := queue.jobs.next_due()) is not None), default=None)


class _Queue:
    """A work queue, those who wait for its jobs, and its run."""

    def __init__(self, spec: QueueSpec, run: _Run) -> None:
        self.jobs = WorkQueue(spec)
        self.line = Line()
        self.run = run

    def take(self) -> _MemoryDelivery | None:
        job = self.jobs.take(anyio.current_time())
        if job is None:
            return None
        self.run.line.call()
        return _MemoryDelivery(self, job)

    def changed(self) -> None:
        """Have the first in both lines look again."""
        self.line.call()
        self.run.line.call()


class _MemoryDelivery:
    """A job in a worker's hands."""

    def __init__(self, queue: _Queue, job: Job) -> None:
        self._queue = queue
        self._job = job
        self._attempt = job.deliveries

    @property
    def payload(self) -> bytes:
        return self._job.payload

    @property
    def msg_id(self) -> str:
        return self._job.msg_id

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
        self._queue.run.check()
        self._queue.jobs.refresh(self._job, self._attempt, anyio.current_time())
