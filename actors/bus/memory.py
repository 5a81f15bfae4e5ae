"""An in-process bus with real queue semantics and no server, for local runs and tests.

Payloads are bytes here too, so actors never share an object. Event streams are as durable as their store. Queues, dead
letters and entries are lost when the process ends; a resumed run submits its unanswered jobs again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from enum import Enum, auto
from hashlib import sha256
from itertools import count

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
    QueueFullError,
    QueueSpec,
    UnknownBlobError,
    UnknownQueueError,
    check_entry,
)
from actors.bus.stream import EventStore, EventStream
from actors.bus.waiting import Line, Place, first_of
from actors.clock import utc_now
from messages.base import BusError, Role


class MemoryBus:
    """Implements `actors.bus.base.Bus` within one event loop."""

    def __init__(self, open_store: Callable[[str], EventStore], *, now: Callable[[], str] = utc_now) -> None:
        """Create an empty bus; `open_store` opens the store of a run's stream by run id, `now` timestamps events."""
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
        """See `Bus.pull`. The first waiter of a queue is served first."""
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
        """See `Bus.open_stream`. Reads the whole store in one blocking step, so call it before other work starts."""
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
        """See `Bus.delete_run`. The owner of the run's store must delete its files."""
        await self.drop_queues(run_id)
        stream = self._streams.pop(run_id, None)
        if stream is not None:
            stream.close()
        self._runs.pop(run_id, None)
        self._blobs.pop(run_id, None)

    def close(self) -> None:
        """Close all stores; the bus cannot be used afterwards."""
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
    def __init__(self, spec: QueueSpec, run: _Run) -> None:
        self.jobs = WorkQueue(spec)
        self.place = Place(Line(), self._take, self.jobs.next_due)
        self.run = run
        self._is_dropped = False

    def changed(self) -> None:
        self.place.line.call()
        self.run.place.line.call()

    def drop(self) -> None:
        self._is_dropped = True
        self.jobs.clear()
        self.changed()

    def check(self) -> None:
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
    def __init__(self, queue: _Queue, job: Job) -> None:
        self._queue = queue
        self._job = job
        self.queue = queue.jobs.spec.name
        self.payload = job.payload
        self.msg_id = job.msg_id
        self.headers = job.headers
        self.attempt = job.deliveries

    async def ack(self) -> None:
        await checkpoint()
        self._queue.jobs.finish(self._job, anyio.current_time())
        self._queue.changed()

    async def nak(self, delay_s: float = 0.0) -> None:
        await checkpoint()
        self._queue.jobs.hand_back(self._job, self.attempt, delay_s, anyio.current_time())
        self._queue.changed()

    async def term(self, reason: str) -> None:
        await checkpoint()
        self._queue.jobs.give_up(self._job, self.attempt, reason, anyio.current_time())
        self._queue.changed()

    async def in_progress(self) -> None:
        await checkpoint()
        self._queue.check()
        self._queue.jobs.refresh(self._job, self.attempt, anyio.current_time())


class _State(Enum):
    WAITING = auto()
    DELAYED = auto()
    HELD = auto()
    GONE = auto()


class Job:
    """A job and its state in the queue. Only its queue modifies it."""

    __slots__ = ("deliveries", "due", "headers", "msg_id", "payload", "place")

    def __init__(self, msg_id: str, payload: bytes, headers: Mapping[str, str]) -> None:
        self.msg_id = msg_id
        self.payload = payload
        self.headers = headers
        self.place = _State.WAITING
        self.deliveries = 0
        self.due = 0.0
        """Held job: time when its holder counts as dead. Delayed job: time when it may be redelivered."""


class WorkQueue:
    """A work queue as a state machine without I/O, waiting or clock. FIFO, but returned jobs come first.

    Every method takes the current time and handles due timers first, so a time-out takes effect at its deadline.
    """

    def __init__(self, spec: QueueSpec) -> None:
        self.spec = spec
        self._jobs: dict[str, Job] = {}
        self._new: deque[Job] = deque()
        self._returned: deque[Job] = deque()
        self._timers: list[tuple[float, int, Job]] = []
        """Heap of timers. A timer counts only while its job is held or delayed with that `due`."""
        self._order = count()
        self._dead: deque[DeadLetter] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, msg_id: str, payload: bytes, now: float, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """Add a job; return False if its id is already queued. Raises `QueueFullError`."""
        self._let_happen(now)
        if msg_id in self._jobs:
            return False
        if len(self._jobs) >= self.spec.max_jobs:
            raise QueueFullError(f"queue {self.spec.name!r} is full ({self.spec.max_jobs} jobs); submit again later")
        job = self._jobs[msg_id] = Job(msg_id, payload, dict(headers))
        self._new.append(job)
        return True

    def take(self, now: float) -> Job | None:
        """Take the next job, or return None."""
        self._let_happen(now)
        for line in (self._returned, self._new):
            while line:
                job = line.popleft()
                if job.place is _State.WAITING:
                    job.place = _State.HELD
                    job.deliveries += 1
                    self._arm(job, now + self.spec.ack_wait_s)
                    return job
        return None

    def finish(self, job: Job, now: float) -> None:
        """Remove a completed job, whatever its state: its result is durable."""
        self._let_happen(now)
        if job.place is not _State.GONE:
            self._remove(job)

    def hand_back(self, job: Job, attempt: int, delay_s: float, now: float) -> None:
        """Return a job after a delay, if delivery `attempt` still holds it."""
        self._let_happen(now)
        if not self._holds(job, attempt):
            return
        if job.deliveries >= self.spec.max_deliver:
            self._bury(job, "max_deliver")
        elif delay_s > 0:
            job.place = _State.DELAYED
            self._arm(job, now + delay_s)
        else:
            self._return(job)

    def give_up(self, job: Job, attempt: int, reason: str, now: float) -> None:
        """Dead-letter a job, if delivery `attempt` still holds it."""
        self._let_happen(now)
        if self._holds(job, attempt):
            self._bury(job, reason)

    def refresh(self, job: Job, attempt: int, now: float) -> None:
        """Restart the ack time-out, if delivery `attempt` still holds the job."""
        self._let_happen(now)
        if self._holds(job, attempt):
            self._arm(job, now + self.spec.ack_wait_s)

    def clear(self) -> None:
        """Remove all jobs; later calls by their holders have no effect."""
        for job in self._jobs.values():
            job.place = _State.GONE
        self._jobs.clear()
        self._new.clear()
        self._returned.clear()
        self._timers.clear()

    def take_dead_letter(self, now: float) -> DeadLetter | None:
        """Remove and return the next dead letter."""
        self._let_happen(now)
        return self._dead.popleft() if self._dead else None

    def next_due(self) -> float | None:
        """Return the time of the next timer, or None."""
        while self._timers:
            due, _, job = self._timers[0]
            if self._counts(due, job):
                return due
            heapq.heappop(self._timers)
        return None

    def _let_happen(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, job = heapq.heappop(self._timers)
            if job.place is _State.HELD and job.deliveries >= self.spec.max_deliver:
                self._bury(job, "max_deliver")
            else:
                self._return(job)

    def _holds(self, job: Job, attempt: int) -> bool:
        return job.place is _State.HELD and job.deliveries == attempt

    def _counts(self, due: float, job: Job) -> bool:
        return job.due == due and job.place in (_State.HELD, _State.DELAYED)

    def _arm(self, job: Job, due: float) -> None:
        job.due = due
        heapq.heappush(self._timers, (due, next(self._order), job))

    def _return(self, job: Job) -> None:
        job.place = _State.WAITING
        self._returned.append(job)

    def _bury(self, job: Job, reason: str) -> None:
        self._remove(job)
        self._dead.append(
            DeadLetter(
                queue=self.spec.name,
                msg_id=job.msg_id,
                payload=job.payload,
                deliveries=job.deliveries,
                reason=reason,
            )
        )

    def _remove(self, job: Job) -> None:
        job.place = _State.GONE
        del self._jobs[job.msg_id]


class Entries:
    """Key-value entries as a state machine. Revisions count writes to all keys, as in a JetStream bucket."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Entry, float | None]] = {}
        self._revision = 0

    def get(self, key: str, now: float) -> Entry | None:
        """Return an entry, or None."""
        kept = self._entries.get(key)
        if kept is None:
            return None
        entry, until = kept
        if until is not None and until <= now:
            del self._entries[key]
            return None
        return entry

    def under(self, prefix: str, now: float) -> dict[str, Entry]:
        """Return the entries with this prefix, by key."""
        keys = sorted(key for key in self._entries if key.startswith(prefix))
        return {key: entry for key in keys if (entry := self.get(key, now)) is not None}

    def put(self, key: str, value: bytes, revision: int, ttl_s: int | None, now: float) -> int:
        """Write an entry. Raises `ConflictError` if the revision differs, `BusError` if the entry is invalid."""
        check_entry(key, value, ttl_s)
        self._check_revision(key, revision, now)
        self._revision += 1
        entry = Entry(value=value, revision=self._revision)
        self._entries[key] = (entry, None if ttl_s is None else now + ttl_s)
        return self._revision

    def delete(self, key: str, revision: int, now: float) -> None:
        """Remove an entry. Raises `ConflictError` if the revision differs."""
        self._check_revision(key, revision, now)
        self._entries.pop(key, None)

    def _check_revision(self, key: str, revision: int, now: float) -> None:
        entry = self.get(key, now)
        last = 0 if entry is None else entry.revision
        if last != revision:
            raise ConflictError(f"entry {key!r} has revision {last}, not {revision}: somebody else wrote first")
