"""Work queues, each a stream with one durable consumer: pulling jobs, held jobs, and dead letters.

Each submission rings a bell. Of the tasks that wait for the same queues, the first few poll the queues in order; when
one gets a job, the next task takes its place. They also poll once a second, because bells may be lost and returned jobs
ring none. A cancelled poll hands back a job in flight.

A job's subject contains its id, and the job is stored only if the subject is empty. So an id is queued at most once
while unacknowledged, and may be submitted again afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from uuid import uuid4
from weakref import WeakValueDictionary

import anyio
import msgspec
import structlog

from actors.bus.base import (
    MAX_JOB_BYTES,
    NO_HEADERS,
    CancelledRunError,
    ConflictError,
    DeadLetter,
    QueueFullError,
    QueueSpec,
    UnknownQueueError,
)
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import ANSWER_S, PARTING_S, PAUSE_S, Connection, Inbox, NoAnswerError, Patience
from actors.bus.nats.entries import Bucket
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
    Receipt,
    RefusedError,
    StreamConfig,
    StreamInfo,
    receipt_of,
)
from messages.base import BusError
from messages.subjects import run_of

log = structlog.get_logger(__name__)

_LETTERS_LOOK_S = 0.25
_REASON_CHARS = 2000


class Letters:
    """The dead letters of all runs."""

    def __init__(self, connection: Connection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs
        self._held: dict[str, int] = {}
        """Number of each run's last returned letter, which the next call deletes."""

    async def next(self, run_id: str) -> DeadLetter:
        """See `Bus.next_dead_letter`."""
        stream = names.dead_stream(run_id)
        if run_id in self._held:
            await self._delete(stream, self._held[run_id])
            del self._held[run_id]
        while True:
            body = msgspec.json.encode({"seq": 1, "next_by_subj": ">"})
            found, _ = await self._connection.insist(f"$JS.API.DIRECT.GET.{stream}", body, what=f"reading {stream}")
            if found.status:  # there is none, or not even the stream
                await anyio.sleep(_LETTERS_LOOK_S)
            elif (letter := await self._letter(run_id, found)) is not None:
                self._held[run_id] = found.sequence
                return letter
            else:
                await self._delete(stream, found.sequence)

    async def bury(self, delivery: NatsDelivery, reason: str) -> None:
        """Store a terminated job as a dead letter."""
        queue, msg_id = delivery.queue, delivery.msg_id
        if not names.is_id(msg_id):
            log.warning("a job from outside this system was dropped", queue=queue, message=msg_id)
            return
        run_id = run_of(queue)
        headers = {
            names.EXPECTED: "0",  # no message id: any client with write access could use up those of others
            names.QUEUE: queue,
            names.DELIVERIES: str(min(delivery.attempt, delivery.spec.max_deliver)),
            names.REASON: reason[:_REASON_CHARS],
        }
        subject = names.dead_letter(run_id, names.kind_of(queue), msg_id)
        content, headers = await self._blobs.spill(run_id, delivery.payload, headers)
        stream, what = names.dead_stream(run_id), f"dead-lettering {msg_id!r}"
        try:
            await self._connection.store(subject, content, headers, stream=stream, what=what)
        except RefusedError as error:
            if error.code not in WRONG_LAST_SEQUENCE:
                raise
            log.debug("this dead letter is there already", job=msg_id)
        except UnknownQueueError:
            log.info("a dead letter of a run without queues", job=msg_id, reason=reason)

    async def _letter(self, run_id: str, found: Reply) -> DeadLetter | None:
        """Return a letter; None if its sender may not use the named queue: permissions check subjects, not headers."""
        subject = found.headers["Nats-Subject"]
        queue = found.headers.get(names.QUEUE, "")
        msg_id = names.id_of(subject.rsplit(".", 1)[-1])
        is_theirs = names.QUEUE_NAME.fullmatch(queue) is not None and names.is_id(msg_id)
        if not is_theirs or subject != names.dead_letter(run_of(queue), names.kind_of(queue), msg_id):
            log.warning(
                "dead letter left out: it is not its sender's to write", run=run_id, subject=subject, queue=queue
            )
            return None
        deliveries = found.headers.get(names.DELIVERIES, "")
        return DeadLetter(
            queue=queue,
            msg_id=msg_id,
            payload=await self._blobs.restore(run_id, found.payload, found.headers),
            deliveries=int(deliveries) if deliveries.isdigit() else 0,
            reason=found.headers.get(names.REASON, ""),
        )

    async def _delete(self, stream: str, seq: int) -> None:
        body = {"seq": seq, "no_erase": True}
        try:
            await self._connection.call(f"STREAM.MSG.DELETE.{stream}", body, Nothing, what=f"emptying {stream}")
        except RefusedError as error:
            log.debug("a message was gone already", stream=stream, seq=seq, code=error.code)


_MARGIN = 0.05
"""Fraction of the ack time-out held in reserve, because the server's timer for a job starts slightly before ours."""
_FORGOTTEN_S = 0.5
_FORGOTTEN_TRIES = 2


class NatsDelivery:
    """A job held by a worker.

    JetStream lets every former holder hand back or terminate a job. So each delivery tracks its refresh deadline, and
    after that sends only `ack`.
    """

    def __init__(
        self,
        connection: Connection,
        queues: Queues,
        letters: Letters,
        spec: QueueSpec,
        reply: Reply,
        receipt: Receipt,
        payload: bytes,
    ) -> None:
        self._connection = connection
        self._queues = queues
        self._letters = letters
        self._reply_to = reply.reply_to
        self._is_settled = False
        self._epoch = connection.epoch
        self.receipt = receipt
        self.spec = spec
        self.queue = spec.name
        self.payload = payload
        self.msg_id = names.named(reply.subject.rsplit(".", 1)[-1], reply.headers.get(names.ID, ""))
        self.headers: Mapping[str, str] = {name: value for name, value in reply.headers.items() if name.islower()}
        self.attempt = receipt.delivered
        self._refresh()

    async def ack(self) -> None:
        """See `Delivery.ack`. Waits for the server's confirmation."""
        self._is_settled = True
        await self._say(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        """See `Delivery.nak`."""
        if not self._holds():
            return
        if self.attempt >= self.spec.max_deliver:
            await self.term("max_deliver")
            return
        self._is_settled = True
        delay = b"" if delay_s <= 0 else b" " + msgspec.json.encode({"delay": int(delay_s * 1e9)})
        await self._say(b"-NAK" + delay)

    async def term(self, reason: str) -> None:
        """See `Delivery.term`."""
        if not self._holds():
            return
        self._is_settled = True
        await self._letters.bury(self, reason)
        await self._say(b"+TERM " + reason.encode()[:256].replace(b"\r", b" ").replace(b"\n", b" "))

    async def in_progress(self) -> None:
        """See `Delivery.in_progress`."""
        if await self._queues.is_cancelled(self.spec.run_id):
            raise CancelledRunError(f"run {self.spec.run_id!r} was cancelled")
        stream = await self._connection.info(self.receipt.stream, what=f"looking for queue {self.queue!r}")
        if stream is None or self.receipt.stream_seq < stream.beginning:  # dropped, and maybe declared anew
            raise CancelledRunError(f"queue {self.queue!r} was dropped")
        if self._holds() and await self._say(b"+WPI"):
            self._refresh()

    def _holds(self) -> bool:
        return not self._is_settled and anyio.current_time() < self._until

    def _refresh(self) -> None:
        self._until = anyio.current_time() + self.spec.ack_wait_s * (1 - _MARGIN)

    async def _say(self, word: bytes) -> bool:
        """Send a word until the server confirms it; False if it lost the delivery or the queue is gone.

        After a crash the server has lost the deliveries of its last tenth of a second and sends no reply about them.
        The job is then redelivered, and its next holder finds the result.
        """
        what = f"{word[:5].decode()} of job {self.msg_id!r}"
        patience, tries = Patience(self._connection, what), 0
        while True:
            is_new = self._connection.epoch == self._epoch
            try:
                reply = await self._connection.ask(self._reply_to, word, within_s=ANSWER_S if is_new else _FORGOTTEN_S)
            except NoAnswerError as error:
                tries += not is_new and self._connection.is_up
                if tries >= _FORGOTTEN_TRIES:
                    log.info(
                        "the server has forgotten this delivery; the job comes back", job=self.msg_id, queue=self.queue
                    )
                    return False
                await patience.take(str(error))
                continue
            if not reply.status:
                return True
            try:
                await self._connection.check_stream(self.receipt.stream, what)
            except UnknownQueueError:
                return False
            await patience.take("its queue has no leader")


LOOK_S = 1.0
"""Polling interval without a bell."""
_LOOKERS = 4
"""Tasks that poll the same queues at once."""
_KEPT = 256
"""Idle inboxes kept for reuse."""
_NOW = msgspec.json.encode({"batch": 1, "no_wait": True})


class Pulls:
    """All tasks of this process that wait for jobs."""

    def __init__(self, connection: Connection, queues: Queues, blobs: Blobs, letters: Letters) -> None:
        self._connection = connection
        self._queues = queues
        self._blobs = blobs
        self._letters = letters
        self._idle: list[Inbox] = []
        self._bells: set[str] = set()
        """Job kinds with subscribed bells."""
        self._rung = anyio.Event()
        """Event that the next bell sets and replaces."""
        self._lines: WeakValueDictionary[frozenset[str], anyio.Semaphore] = WeakValueDictionary()
        """Semaphores by set of queues: only the first waiting tasks poll."""

    async def pull(self, *queues: str) -> NatsDelivery:
        """See `Bus.pull`."""
        for queue in queues:
            await self._queues.spec_of(queue)
        for kind in {names.kind_of(queue) for queue in queues} - self._bells:
            self._bells.add(kind)
            await self._connection.listen(names.bell(kind), self._on_bell)
        line = self._lines.setdefault(frozenset(queues), anyio.Semaphore(_LOOKERS))
        async with line:
            while True:
                rung = self._rung
                for queue in queues:
                    found = await self._take(queue)
                    if found is not None:
                        return found
                with anyio.move_on_after(LOOK_S):
                    await rung.wait()

    def _on_bell(self, payload: bytes) -> None:
        queue = payload.decode(errors="replace")
        if any(queue in queues for queues in self._lines):
            self._rung.set()
            self._rung = anyio.Event()

    async def _take(self, queue: str) -> NatsDelivery | None:
        """Poll a queue once. None: no job is available."""
        inbox = await self._inbox()
        is_clean = False
        try:
            await inbox.ask(f"$JS.API.CONSUMER.MSG.NEXT.{names.job_stream(queue)}.{names.kind_of(queue)}", _NOW)
            reply = await inbox.take(ANSWER_S)
            if not reply.status:
                is_clean = True
                return await self._delivery(queue, reply)
            is_clean = reply.status in ("404", "408")
            if not is_clean:
                await self._queues.check(queue)
                await anyio.sleep(PAUSE_S)
        except NoAnswerError:
            await self._connection.ready(f"waiting for jobs in {queue!r}")
        finally:
            if is_clean and len(self._idle) < _KEPT:
                self._idle.append(inbox)
            else:
                for left in await inbox.close():
                    await self._hand_back(left)
        return None

    async def _inbox(self) -> Inbox:
        while self._idle:
            inbox = self._idle.pop()
            if not inbox.is_broken:
                return inbox
            await inbox.drop()
        return await self._connection.open_inbox()

    async def _delivery(self, queue: str, reply: Reply) -> NatsDelivery | None:
        """Return the job; dead-letter it and return None if it was delivered too often.

        The server's own limit would leave the job in the stream, with an advisory that may be lost.
        """
        receipt = receipt_of(reply.reply_to)
        if receipt is None:
            raise BusError(f"a job of {queue!r} came without a place for its acknowledgement: {reply.reply_to!r}")
        try:
            spec = await self._queues.spec_of(queue)
            payload = await self._blobs.restore(spec.run_id, reply.payload, reply.headers)
        except BaseException:
            await self._hand_back(reply)
            raise
        delivery = NatsDelivery(self._connection, self._queues, self._letters, spec, reply, receipt, payload)
        if delivery.attempt <= spec.max_deliver:
            return delivery
        await delivery.term("max_deliver")
        return None

    async def _hand_back(self, reply: Reply) -> None:
        if receipt_of(reply.reply_to) is None:
            return
        with anyio.move_on_after(PARTING_S, shield=True):
            try:
                await self._connection.ask(reply.reply_to, b"-NAK", within_s=PARTING_S)
            except NoAnswerError as error:
                log.warning("a job could not be handed back; it comes back later", job=reply.subject, error=str(error))


_SPEC = "ksearch_spec"
_DUPLICATES_NS = 120_000_000_000
"""De-duplication window for submissions; our retry limit is shorter."""
_WAITING = 16_384
"""Maximum waiting pulls per queue."""


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
            # A late acknowledgement for a job of a dropped queue must not match a job of this one.
            first_seq=time.time_ns() // 1_000_000,
            allow_direct=True,
            metadata={_SPEC: msgspec.json.encode(spec).decode()},
        )
        there = _spec_of(await self._streams.ensure(config), spec.name)
        if there != spec:
            raise ConflictError(f"queue {spec.name!r} was declared otherwise: {there!r}, now {spec!r}")
        letters = StreamConfig(
            name=names.dead_stream(spec.run_id),
            subjects=(f"ks.dead.{spec.run_id}.>",),
            duplicate_window=_DUPLICATES_NS,
            allow_direct=True,
        )
        await self._streams.ensure(letters)
        consumer = ConsumerConfig(
            name=kind,
            durable_name=kind,
            ack_policy="explicit",
            ack_wait=int(spec.ack_wait_s * 1e9),
            max_ack_pending=-1,
            max_waiting=_WAITING,
        )
        body = {"stream_name": stream, "config": consumer, "action": ""}
        request = f"CONSUMER.CREATE.{stream}.{kind}"
        await self._connection.call(request, body, ConsumerInfo, what=f"declaring {spec.name!r}")
        self._specs[spec.name] = spec

    async def submit(self, queue: str, payload: bytes, *, msg_id: str, headers: Mapping[str, str] = NO_HEADERS) -> bool:
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
        """Return a queue's specification. Raises `UnknownQueueError` if the queue does not exist."""
        known = self._specs.get(queue)
        if known is None:
            info = await self._connection.info(names.job_stream(queue), what=f"looking for queue {queue!r}")
            if info is None:
                raise UnknownQueueError(f"queue {queue!r} was not declared")
            known = self._specs[queue] = _spec_of(info, queue)
        return known

    async def check(self, queue: str) -> None:
        """Raise `UnknownQueueError` if a queue does not exist or cannot be pulled from."""
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
            # No message is that small, so submissions are refused at no cost to those to other queues.
            closed = {**info.config, "max_msg_size": 1}
            await self._connection.call(f"STREAM.UPDATE.{stream}", closed, StreamInfo, what=what)
            await self._connection.call(f"STREAM.PURGE.{stream}", None, Nothing, what=what)

    async def is_cancelled(self, run_id: str) -> bool:
        """Return True if the run has a tombstone."""
        return await self._bucket.get(names.tombstone(run_id)) is not None

    async def streams_of(self, run_id: str) -> tuple[str, ...]:
        """Return the names of the run's job streams."""
        body = {"subject": names.jobs_of(run_id), "offset": 0}
        found = await self._connection.call("STREAM.NAMES", body, Page, what=f"the queues of run {run_id!r}")
        return tuple(name for name in found.streams or () if name.startswith(names.JOBS))

    async def _is_ours(self, error: RefusedError, queue: str, subject: str, attempt: str) -> bool:
        """Return True if an earlier try of ours stored the refused job, False if it existed before.

        Raises:
            BusError: the job was refused for another reason.
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
        try:
            await self._connection.tell(names.bell(names.kind_of(queue)), queue.encode())
        except NoAnswerError:
            return


def _spec_of(info: StreamInfo, queue: str) -> QueueSpec:
    try:
        return msgspec.json.decode(info.metadata.get(_SPEC, ""), type=QueueSpec)
    except msgspec.DecodeError as error:
        raise BusError(f"the stream of queue {queue!r} was not made by ksearch: {error}") from error
