"""The bus: what actors may rely on, whichever implementation carries their messages.

Promises (each has a contract test in `tests/contracts/bus.py`), none of them more than JetStream can keep:

- A work queue hands each job to one worker at a time. The job comes back if it is not acknowledged, refreshed or
  handed back within `ack_wait_s`; after `max_deliver` deliveries it is dead-lettered. So a job may be done twice.
- An event is durable when `publish` returns, has one place in its run's order, and can be read again from any place.
- A message id is stored once per stream, and once per queue for as long as its job is unacknowledged.
- A full queue refuses (`QueueFullError`): back-pressure is the submitter's to handle.
- A cancelled run's queued jobs are gone; its jobs in flight are told at their next heartbeat and never come back.
- A key-value entry changes only if the writer knows its revision; one with a time to live is gone unless it is written
  again in time. Such times are whole seconds, 1 at least, and may be up to a second late.
- A blob is kept under the hash of its content for as long as its run.
- What is too large (`MAX_JOB_BYTES`, `MAX_EVENT_BYTES`) is refused with a `BusError` and changes nothing.
"""

from __future__ import annotations

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
    """The queue holds as many jobs as it may; submit again later."""


class ConflictError(BusError):
    """Somebody else wrote first: the expected revision or sequence number is not the last one."""


class UnknownQueueError(BusError):
    """The queue or stream was never declared, or was dropped."""


class UnknownBlobError(BusError):
    """No blob of the run has this digest."""


class CancelledRunError(BusError):
    """The run of this job was cancelled; stop working on it."""


class QueueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a work queue behaves."""

    name: str
    ack_wait_s: float = 30.0
    max_deliver: int = 4
    max_jobs: int = 1024
    """Unacknowledged and waiting jobs together."""
    run_id: str
    """Run to which all its jobs belong; cancelling the run empties the queue."""


class Posted(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of an event stream, its body still encoded."""

    seq: int
    at: str
    """When it was appended, ISO 8601, UTC."""
    msg_id: str
    payload: bytes
    role: Role | None = None
    """Who published it, as far as the bus vouches for that; None where all publishers are one process."""
    headers: Mapping[str, str] = {}
    """What travelled beside it; a bus that was started anew may have lost them."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A job that nobody could do."""

    queue: str
    msg_id: str
    payload: bytes
    deliveries: int
    reason: str
    """`max_deliver`, or what the worker said when it terminated the job."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A key-value entry."""

    value: bytes
    revision: int


class Delivery(Protocol):
    """A job in a worker's hands. Exactly one of `ack`, `nak`, `term` ends it; a late one is harmless."""

    @property
    def queue(self) -> str:
        """The queue it came from."""

    @property
    def payload(self) -> bytes:
        """The job, encoded."""

    @property
    def msg_id(self) -> str:
        """The id under which it was submitted."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What travelled beside it, such as the trace it belongs to: nothing that the job's meaning depends on."""

    @property
    def attempt(self) -> int:
        """1 on the first delivery."""

    async def ack(self) -> None:
        """Say that it is done and its result is durable."""

    async def nak(self, delay_s: float = 0.0) -> None:
        """Hand it back; it is delivered again after the delay, here or elsewhere."""

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
        """Make a queue; again with the same spec changes nothing, with another spec it is a `ConflictError`."""

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
        """Put a job into a queue. False if that id is there already.

        Raises:
            QueueFullError: it holds `max_jobs`.
            UnknownQueueError: it was not declared.
            CancelledRunError: its run was cancelled.
        """

    async def pull(self, *queues: str) -> Delivery:
        """Wait for a job in any of these queues. Where several have one, the queue named first gives its.

        Cancelling the wait strands none.

        Raises:
            UnknownQueueError: one of the queues is not there, or is dropped during the wait.
        """

    async def drop_queues(self, run_id: str) -> None:
        """Forget the run's queues with all that is in them; they may be declared again. Its event stream stays.

        Jobs in flight are told at their next heartbeat.
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
            run_id: whose stream.
            payload: the encoded body.
            msg_id: de-duplication key: letters, digits, dashes and dots.
            role: who says it; a bus with permissions holds publishers to their own.
            headers: what travels beside it, see `Posted.headers`; lower-case names, short values in ASCII.
            expected_last_decision: sequence number of the last record that was published *with* this argument
                (0: none). Fences the planner: there is one writer of decisions.

        Raises:
            ConflictError: another decision was published since.
            UnknownQueueError: the stream was not opened.
        """

    async def find(self, run_id: str, msg_id: str, *, role: Role | None = None) -> int | None:
        """Return the sequence number of the event that was published under this id; None if there is none.

        Args:
            run_id: in whose stream.
            msg_id: the id.
            role: who is to have published it, where the bus vouches for that; None: anybody whom one may ask for.

        Raises:
            UnknownQueueError: the stream was not opened.
        """

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Posted, None]:
        """Replay the stream from behind `after`, then follow it for ever. Many readers may do so at once."""

    async def cancel_run(self, run_id: str) -> None:
        """Drop the run's queued jobs, and have those in flight told. Its event stream stays."""

    async def get(self, key: str) -> Entry | None:
        """Read an entry."""

    async def entries(self, prefix: str) -> Mapping[str, Entry]:
        """Read all entries whose keys begin with these whole tokens (`node.` or `node.evaluator.`), by key."""

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        """Write an entry whose revision is `revision` (0: that does not exist). Returns the new revision.

        Args:
            key: letters, digits and any of -/_=. (dots part tokens).
            value: at most `MAX_JOB_BYTES`.
            revision: what it has now.
            ttl_s: how long it is there unless it is put again; None: for ever.

        Raises:
            ConflictError: it has another revision.
        """

    async def delete(self, key: str, *, revision: int) -> None:
        """Remove an entry that has this revision.

        Raises:
            ConflictError: it has another revision.
        """

    async def put_blob(self, run_id: str, content: bytes) -> str:
        """Keep a blob for the run, once. Returns its digest (sha256, hex).

        Raises:
            UnknownQueueError: the run's stream was not opened.
        """

    async def get_blob(self, run_id: str, digest: str) -> bytes:
        """Return a blob's content, which has this digest.

        Raises:
            UnknownBlobError: there is none.
        """

    async def delete_run(self, run_id: str) -> None:
        """Forget all of a run: its queues, dead letters, events and blobs. A run that is not there is no error."""
