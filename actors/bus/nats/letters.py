"""Dead letters of a run. A worker that ends a job copies it first, and so does one that is given a job too often."""

from __future__ import annotations

import anyio
import msgspec
import structlog

from actors.bus.base import DeadLetter, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection
from actors.bus.nats.queues import NatsDelivery
from actors.bus.nats.wire import WRONG_LAST_SEQUENCE, Nothing, RefusedError
from messages.subjects import run_of

log = structlog.get_logger(__name__)

_LOOK_S = 0.25
_REASON_CHARS = 2000


class Letters:
    """The dead letters of all runs."""

    def __init__(self, connection: Connection, blobs: Blobs) -> None:
        self._connection = connection
        self._blobs = blobs
        self._held: dict[str, int] = {}
        """By run: number of the letter given last, deleted at the next call."""

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
                await anyio.sleep(_LOOK_S)
            elif (letter := await self._letter(run_id, found)) is not None:
                self._held[run_id] = found.sequence
                return letter
            else:
                await self._delete(stream, found.sequence)

    async def bury(self, delivery: NatsDelivery, reason: str) -> None:
        """Keep a copy of a job that a worker ends."""
        queue, msg_id = delivery.queue, delivery.msg_id
        if not names.is_id(msg_id):
            log.warning("a job from outside this system was dropped", queue=queue, message=msg_id)
            return
        run_id = run_of(queue)
        headers = {
            names.EXPECTED: "0",  # no message id: whoever may write here at all could use up those of others
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

    async def _delete(self, stream: str, seq: int) -> None:
        body = {"seq": seq, "no_erase": True}
        try:
            await self._connection.call(f"STREAM.MSG.DELETE.{stream}", body, Nothing, what=f"emptying {stream}")
        except RefusedError as error:
            log.debug("a message was gone already", stream=stream, seq=seq, code=error.code)
