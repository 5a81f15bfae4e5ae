"""The bus: the guarantees that actors rely on, whichever implementation carries their messages.

Each guarantee has a contract test in `tests/contracts/bus.py`; none exceeds what JetStream can provide:

- A work queue gives each job to one worker at a time. It redelivers the job if the worker does not acknowledge, refresh
  or hand it back within `ack_wait_s`; after `max_deliver` deliveries the job is dead-lettered, at the next pull at the
  latest. A job may therefore be done twice.
- An event is durable when `publish` returns, has a fixed position in its run's order, and can be read again from any
  position.
- A message id is stored once per stream, and once per queue while its job is unacknowledged.
- A full queue refuses jobs (`QueueFullError`); the submitter must handle back-pressure.
- Cancelling a run removes its queued jobs; workers that hold its jobs learn this at their next heartbeat.
- A key-value entry changes only if the writer gives its current revision. A time to live is a whole number of seconds,
  at least 1, and may end up to a second late.
- A blob is stored under the hash of its content, for the lifetime of its run.
- Content above `MAX_JOB_BYTES` or `MAX_EVENT_BYTES` is refused with a `BusError` and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import Protocol

import msgspec

from messages.base import BusError, Role

NO_HEADERS: Mapping[str, str] = MappingProxyType({})
MAX_JOB_BYTES = 1 << 20
"""Largest job and largest key-value entry: the default `max_payload` of a NATS server."""
MAX_BLOB_BYTES = 256 << 20
"""Largest blob: a packed artifact."""
MAX_EVENT_BYTES = 8 << 20
"""Largest event: the largest `max_payload` that NATS recommends. An event holds prompt and answer, never artifacts."""


class QueueFullError(BusError):
    """The queue is full (`max_jobs`); submit again later."""


class ConflictError(BusError):
    """Another writer was first: the expected revision or sequence number is not the latest one."""


class UnknownQueueError(BusError):
    """The queue or stream was never declared, or was dropped."""


class UnknownBlobError(BusError):
    """No blob of the run has this digest."""


class CancelledRunError(BusError):
    """The run of this job was cancelled; stop working on it."""


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a work queue."""

    name: str
    ack_wait_s: float = 30.0
    max_deliver: int = 4
    max_jobs: int = 1024
    """Limit on waiting plus unacknowledged jobs."""
    run_id: str
    """Run that owns the jobs; cancelling it empties the queue."""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an event stream, its body still encoded."""

    seq: int
    at: str
    """Time of appending, ISO 8601, UTC."""
    msg_id: str
    payload: bytes
    role: Role | None = None
    """Publisher as verified by the bus; None if all publishers share one process."""
    headers: Mapping[str, str] = {}
    """Headers of the message; a restarted bus may have lost them."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A job that no worker could do."""

    queue: str
    msg_id: str
    payload: bytes
    deliveries: int
    reason: str
    """`max_deliver`, or the worker's reason for ending the job."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A key-value entry."""

    value: bytes
    revision: int


class Delivery(Protocol):
    """A job delivered to a worker. Exactly one of `ack`, `nak`, `term` settles it; a late call is harmless."""

    queue: str
    payload: bytes
    msg_id: str
    headers: Mapping[str, str]
    """Headers of the message, such as its trace; they do not affect the job's meaning."""
    attempt: int
    """1 on the first delivery."""

    async def ack(self) -> None:
        """Report that the job is done and its result durable."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Return the job to the queue for redelivery after the delay."""

    async def term(self, reason: str) -> None:
        """Dead-letter the job at once, because a retry cannot help."""

    async def in_progress(self) -> None:
        """Restart the ack time-out.

        Raises:
            CancelledRunError: the run was cancelled, or its queues were dropped.
        """


class Bus(Protocol):
    """Work queues, key-value entries, and an event stream and blobs for each run."""

    async def declare_queue(self, spec: QueueSpec) -> None:
        """Create a queue unless it exists with this spec; a different spec raises `ConflictError`."""

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """Put a job into a queue. Returns False if its id is already queued.

        Raises:
            QueueFullError: the queue holds `max_jobs` jobs.
            UnknownQueueError: the queue was not declared.
            CancelledRunError: the run was cancelled.
        """

    async def pull(self, *queues: str) -> Delivery:
        """Wait for a job from any of these queues, preferring earlier ones. Cancelling the wait strands no job.

        Raises:
            UnknownQueueError: a queue does not exist, or is dropped during the wait.
        """

    async def drop_queues(self, run_id: str) -> None:
        """Delete the run's queues and jobs but keep its event stream; the queues may be declared again.

        Workers that hold its jobs learn this at their next heartbeat.
        """

    async def next_dead_letter(self, run_id: str) -> DeadLetter:
        """Wait for the run's next dead letter; each is returned once and then deleted."""

    async def open_stream(self, run_id: str) -> int:
        """Create or reopen the run's event stream. Returns the last sequence number (0: empty)."""

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
        """Append an event durably. Returns its sequence number (the existing one for a known `msg_id`).

        Args:
            run_id: run of the stream.
            payload: the encoded body.
            msg_id: de-duplication key: letters, digits, dashes and dots.
            role: the publisher; a bus with permissions limits each publisher to its own role.
            headers: lower-case names, short values in ASCII; see `Posted.headers`.
            expected_last_decision: sequence number of the last record that was published *with* this argument (0:
                none). Fences the planner, so that only one planner writes decisions.

        Raises:
            ConflictError: another decision has been published since.
            UnknownQueueError: the stream was not opened.
        """

    async def find(self, run_id: str, msg_id: str, *, role: Role | None = None) -> int | None:
        """Return the sequence number of the event with this id; None if there is none.

        `role` is the event's publisher, if the bus verifies publishers; None: any role that the caller may query.

        Raises:
            UnknownQueueError: the stream was not opened.
        """

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Posted, None]:
        """Replay the stream after sequence number `after`, then follow it for ever. Many readers may do so at once."""

    async def cancel_run(self, run_id: str) -> None:
        """Drop the run's queued jobs; workers that hold jobs learn of it. The event stream is kept."""

    async def get(self, key: str) -> Entry | None:
        """Read an entry."""

    async def entries(self, prefix: str) -> Mapping[str, Entry]:
        """Return by key all entries with keys that start with these whole tokens (`node.` or `node.evaluator.`)."""

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        """Write an entry that has this revision (0: it does not exist). Returns the new revision.

        Args:
            key: letters, digits and any of -/_=. (dots separate tokens).
            value: at most `MAX_JOB_BYTES`.
            revision: the current revision.
            ttl_s: lifetime of the entry unless it is put again; None: for ever.

        Raises:
            ConflictError: the entry has another revision.
        """

    async def delete(self, key: str, *, revision: int) -> None:
        """Remove an entry with this revision. Raises `ConflictError` if it has another one."""

    async def put_blob(self, run_id: str, content: bytes) -> str:
        """Store a blob once for the run. Returns its digest (sha256, hex).

        Raises:
            UnknownQueueError: the run's stream was not opened.
        """

    async def get_blob(self, run_id: str, digest: str) -> bytes:
        """Return the content of this digest. Raises `UnknownBlobError` if there is none."""

    async def delete_run(self, run_id: str) -> None:
        """Delete all data of a run: queues, dead letters, events and blobs. An unknown run is no error."""


_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


def check_entry(key: str, value: bytes, ttl_s: int | None) -> None:
    """Raise `BusError` for an entry that not every bus can store."""
    if _KEY.fullmatch(key) is None or key.startswith(".") or key.endswith(".") or ".." in key:
        raise BusError(f"{key!r} is no key: use letters, digits and any of -/_=, and dots between tokens")
    if len(value) > MAX_JOB_BYTES:
        raise BusError(f"entry {key!r} has {len(value)} bytes; at most {MAX_JOB_BYTES} may be put")
    if ttl_s is not None and ttl_s < 1:
        raise BusError(f"entry {key!r} cannot live for {ttl_s} s: 1 s at least")
