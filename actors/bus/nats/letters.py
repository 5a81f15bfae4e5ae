"""Dead letters of a run, and the janitor that makes them.

A worker that ends a job copies it first. A job delivered too often leaves the server's advisory; the server notices at
a pull, so the janitor pulls with a limit of one byte, which no job fits into. If the advisory was lost, the job is
in its queue; a periodic scan finds it once no other job of the queue is in hand.
"""

from __future__ import annotations

import anyio
import msgspec
import structlog

from actors.bus.base import DeadLetter, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection, NoAnswerError
from actors.bus.nats.queues import NatsDelivery, Queues
from actors.bus.nats.wire import WRONG_LAST_SEQUENCE, Advisory, ConsumerInfo, Nothing, RefusedError
from messages.subjects import run_of

log = structlog.get_logger(__name__)

_LOOK_S = 0.25
_NUDGE_S = 1.0
_REASON_CHARS = 2000
_advisory = msgspec.json.Decoder(Advisory)
_NUDGE = msgspec.json.encode({"batch": 1, "no_wait": True, "max_bytes": 1})


class Letters:
    """The dead letters of all runs."""

    def __init__(self, connection: Connection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs
        self._held: dict[str, int] = {}
        """By run: number of the letter given last, deleted at the next call."""

    async def bury(self, delivery: NatsDelivery, reason: str) -> None:
        """Keep a copy of a job that a worker ends."""
        await self._keep(delivery.queue, delivery.msg_id, delivery.attempt, reason, delivery.payload)

    async def next(self, run_id: str, queues: Queues) -> DeadLetter:
        """See `Bus.next_dead_letter`."""
        stream = names.dead_stream(run_id)
        if run_id in self._held:
            await self._delete(stream, self._held[run_id])
            del self._held[run_id]
        janitor = _Janitor(self._connection, self, run_id, queues)
        while True:
            found = await self._get(stream, {"seq": 1, "next_by_subj": ">"})
            if found is None:
                await janitor.work()
                await anyio.sleep(_LOOK_S)
                continue
            if found.headers["Nats-Subject"].startswith(names.ADVISORIES):
                await self._take_advisory(found)
            elif (letter := await self._letter(run_id, found)) is not None:
                self._held[run_id] = found.sequence
                return letter
            await self._delete(stream, found.sequence)

    async def convert(self, stream: str, seq: int, deliveries: int) -> None:
        """Make a dead letter of a job that no worker will get any more, and remove it from its queue."""
        reply = await self._get(stream, {"seq": seq})
        if reply is None:
            return
        queue = names.queue_of(stream)
        payload = await self._blobs.restore(run_of(queue), reply.payload, reply.headers)
        msg_id = names.id_of(reply.headers["Nats-Subject"].rsplit(".", 1)[-1])
        await self._keep(queue, msg_id, deliveries, "max_deliver", payload)
        await self._delete(stream, seq)

    async def _take_advisory(self, found: Reply) -> None:
        try:
            advisory = _advisory.decode(found.payload)
        except msgspec.DecodeError as error:
            log.warning("an advisory that cannot be read", error=str(error))
            return
        await self.convert(advisory.stream, advisory.stream_seq, advisory.deliveries)

    async def _letter(self, run_id: str, found: Reply) -> DeadLetter | None:
        """Return a letter; None if its sender may not write of that queue: permissions hold subjects, not headers."""
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

    async def _keep(self, queue: str, msg_id: str, deliveries: int, reason: str, payload: bytes) -> None:
        if not names.is_id(msg_id):
            log.warning("a job from outside this system was dropped", queue=queue, message=msg_id)
            return
        run_id = run_of(queue)
        headers = {
            names.EXPECTED: "0",  # no message id: any client with write access could use up those of others
            names.QUEUE: queue,
            names.DELIVERIES: str(deliveries),
            names.REASON: reason[:_REASON_CHARS],
        }
        subject = names.dead_letter(run_id, names.kind_of(queue), msg_id)
        content, headers = await self._blobs.spill(run_id, payload, headers)
        stream, what = names.dead_stream(run_id), f"dead-lettering {msg_id!r}"
        try:
            await self._connection.store(subject, content, headers, stream=stream, what=what)
        except RefusedError as error:
            if error.code not in WRONG_LAST_SEQUENCE:
                raise
            log.debug("this dead letter is there already", job=msg_id)
        except UnknownQueueError:
            log.info("a dead letter of a run without queues", job=msg_id, reason=reason)

    async def _get(self, stream: str, which: dict[str, object]) -> Reply | None:
        subject = f"$JS.API.DIRECT.GET.{stream}"
        reply, _ = await self._connection.insist(subject, msgspec.json.encode(which), what=f"reading {stream}")
        return None if reply.status else reply

    async def _delete(self, stream: str, seq: int) -> None:
        body = {"seq": seq, "no_erase": True}
        try:
            await self._connection.call(f"STREAM.MSG.DELETE.{stream}", body, Nothing, what=f"emptying {stream}")
        except RefusedError as error:
            log.debug("a message was gone already", stream=stream, seq=seq, code=error.code)


class _Janitor:
    def __init__(self, connection: Connection, letters: Letters, run_id: str, queues: Queues) -> None:
        self._connection = connection
        self._letters = letters
        self._run_id = run_id
        self._queues = queues
        self._nudged_at = anyio.current_time()
        self._sweep_s = connection.options.sweep_s
        self._swept_at = anyio.current_time() - self._sweep_s / 2
        self._suspects: dict[str, int] = {}
        """First message of each queue without a job in hand at the last scan."""

    async def work(self) -> None:
        now = anyio.current_time()
        if now < self._nudged_at + _NUDGE_S:
            return
        self._nudged_at = now
        is_sweep = now >= self._swept_at + self._sweep_s
        if is_sweep:
            self._swept_at = now
        for stream in await self._queues.streams_of(self._run_id):
            await self._nudge(stream)
            if is_sweep:
                await self._sweep(stream)

    async def _nudge(self, stream: str) -> None:
        kind = names.kind_of(names.queue_of(stream))
        try:
            await self._connection.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{kind}", _NUDGE)
        except NoAnswerError as error:
            log.debug("no answer to a nudge", stream=stream, error=str(error))

    async def _sweep(self, stream: str) -> None:
        """Find a dead job: delivered, still there, and in no hands at two looks in a row."""
        before = self._suspects.pop(stream, 0)
        spec = await self._queues.spec_of(names.queue_of(stream))
        what = f"sweeping {stream}"
        try:
            request = f"CONSUMER.INFO.{stream}.{names.kind_of(spec.name)}"
            consumer = await self._connection.call(request, None, ConsumerInfo, what=what)
            found = await self._connection.info(stream, what=what)
        except RefusedError:
            return
        if found is None or not found.state.messages or consumer.num_ack_pending:
            return
        first = found.state.first_seq
        if first != before:
            self._suspects[stream] = first
        elif first <= consumer.delivered.stream_seq:
            log.warning("a dead job without an advisory", queue=spec.name, seq=first)
            await self._letters.convert(stream, first, spec.max_deliver)
