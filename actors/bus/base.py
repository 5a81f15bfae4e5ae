"""The bus: the promises that actors may rely on, whichever implementation carries their messages.

Each has a contract test in `tests/contracts/bus.py`; none is more than JetStream can keep:

- A work queue hands each job to one worker at a time. The job comes back if it is not acknowledged, refreshed or handed
back within `ack_wait_s`; after `max_deliver` deliveries it is dead-lettered, at the next pull at the latest. So a job
may be done twice.
- An event is durable when `publish` returns, has one place in its run's order, and can be read again from any place.
- A message id is stored once per stream, and once per queue for as long as its job is unacknowledged.
- A full queue refuses (`QueueFullError`): back-pressure is the submitter's to handle.
- A cancelled run's queued jobs are gone; holders of its jobs learn it at their next heartbeat.
- A key-value entry changes only if the writer knows its revision. A time to live is in whole seconds, 1 at least, and
may end up to a second late.
- A blob is kept under the hash of its content for as long as its run.
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
    """The queue holds `max_jobs`; submit again later."""


class ConflictError(BusError):
    """Somebody else wrote first: the expected revision or sequence number is not the last one."""


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
    """Unacknowledged and waiting jobs together."""
    run_id: str
    """Run of all its jobs; cancelling the run empties the queue."""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an event stream, its body still encoded."""

    seq: int
    at: str
    """Time of appending, ISO 8601, UTC."""
    msg_id: str
    payload: bytes
    role: Role | None = None
    """Publisher, as far as the bus vouches for it; None where all publishers are one process."""
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
    """A job in a worker's hands. Exactly one of `ack`, `nak`, `term` ends it; a late one is harmless."""

    queue: str
    payload: bytes
    msg_id: str
    headers: Mapping[str, str]
    """Headers of the message, such as its trace; the job's meaning depends on none."""
    attempt: int
    """1 on the first delivery."""

    async def ack(self) -> None:
        """Report that the job is done and its result durable."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Hand it back; it is delivered again after the delay."""

    async def term(self, reason: str) -> None:
        """Dead-letter it at once: trying again cannot help."""

    async def in_progress(self) -> None:
        """Start the ack time-out anew.

        Raises:
            CancelledRunError: the run was cancelled, or its queues were dropped.
        """


class Bus(Protocol):
    """Work queues, one event stream and the blobs of each run, and key-value entries."""

    async def declare_queue(self, spec: QueueSpec) -> None:
        """Make a queue; again with the same spec changes nothing, another spec is a `ConflictError`."""

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """Put a job into a queue. False if that id is there already.

        Raises:
            QueueFullError: it holds `max_jobs`.
            UnknownQueueError: it was not declared.
            CancelledRunError: its run was cancelled.
        """

    async def pull(self, *queues: str) -> Delivery:
        """Wait for a job in any of these queues; the queue named first comes first. Cancelling the wait strands no job.

        Raises:
            UnknownQueueError: one of the queues is not there, or is dropped during the wait.
        """

    async def drop_queues(self, run_id: str) -> None:
        """Forget the run's queues and their jobs; they may be declared again. Its event stream stays.

        Holders of its jobs learn it at their next heartbeat.
        """

    async def next_dead_letter(self, run_id: str) -> DeadLetter:
        """Wait for the run's next dead letter; each is given once and then forgotten."""

    async def open_stream(self, run_id: str) -> int:
        """Make the run's event stream, or find it again. Returns the last sequence number (0: empty)."""

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
        """Append an event; durable when this returns. Returns its sequence number (the old one for a known `msg_id`).

        Args:
            run_id: run of the stream.
            payload: the encoded body.
            msg_id: de-duplication key: letters, digits, dashes and dots.
            role: the publisher; a bus with permissions holds publishers to their own.
            headers: lower-case names, short values in ASCII; see `Posted.headers`.
            expected_last_decision: sequence number of the last record that was published *with* this argument (0:
                none). Fences the planner: there is one writer of decisions.

        Raises:
            ConflictError: another decision was published since.
            UnknownQueueError: the stream was not opened.
        """

    async def find(self, run_id: str, msg_id: str, *, role: Role | None = None) -> int | None:
        """Return the sequence number of the event with this id; None if there is none.

        `role` is its publisher, if the bus vouches for that; None: any that the caller may ask for.

        Raises:
            UnknownQueueError: the stream was not opened.
        """

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Posted, None]:
        """Replay the stream from behind `after`, then follow it for ever. Many readers may do so at once."""

    async def cancel_run(self, run_id: str) -> None:
        """Drop the run's queued jobs; holders of the others learn it. Its event stream stays."""

    async def get(self, key: str) -> Entry | None:
        """Read an entry."""

    async def entries(self, prefix: str) -> Mapping[str, Entry]:
        """Read all entries with keys that begin with these whole tokens (`node.` or `node.evaluator.`), by key."""

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        """Write an entry with this revision (0: it does not exist). Returns the new revision.

        Args:
            key: letters, digits and any of -/_=. (dots part tokens).
            value: at most `MAX_JOB_BYTES`.
            revision: the present one.
            ttl_s: life of the entry unless it is put again; None: for ever.

        Raises:
            ConflictError: it has another revision.
        """

    async def delete(self, key: str, *, revision: int) -> None:
        """Remove an entry with this revision. Raises `ConflictError` if it has another one."""

    async def put_blob(self, run_id: str, content: bytes) -> str:
        """Keep a blob for the run, once. Returns its digest (sha256, hex).

        Raises:
            UnknownQueueError: the run's stream was not opened.
        """

    async def get_blob(self, run_id: str, digest: str) -> bytes:
        """Return the content of this digest. Raises `UnknownBlobError` if there is none."""

    async def delete_run(self, run_id: str) -> None:
        """Forget all of a run: queues, dead letters, events and blobs. An unknown run is no error."""


_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


def check_entry(key: str, value: bytes, ttl_s: int | None) -> None:
    """Raise `BusError` for an entry that not every bus can keep."""
    if _KEY.fullmatch(key) is None or key.startswith(".") or key.endswith(".") or ".." in key:
        raise BusError(f"{key!r} is no key: use letters, digits and any of -/_=, and dots between tokens")
    if len(value) > MAX_JOB_BYTES:
        raise BusError(f"entry {key!r} has {len(value)} bytes; at most {MAX_JOB_BYTES} may be put")
    if ttl_s is not None and ttl_s < 1:
        raise BusError(f"entry {key!r} cannot live for {ttl_s} s: 1 s at least")
