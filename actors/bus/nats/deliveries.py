"""Jobs in workers' hands, and what they say about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import anyio
import msgspec
import structlog

from actors.bus.base import CancelledRunError, QueueSpec, UnknownQueueError
from actors.bus.nats import names
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection
from actors.bus.nats.link import ANSWER_S, NoAnswerError, Patience
from actors.bus.nats.wire import Receipt

log = structlog.get_logger(__name__)

_MARGIN = 0.05
"""Part of the ack time-out that is kept back: the server's clock for a job starts a little before ours."""


_FORGOTTEN_S = 0.5
_FORGOTTEN_TRIES = 2


class Cancelled(Protocol):
    """Looks for a tombstone."""

    async def __call__(self, run_id: str, /) -> bool:
        """Say whether a run was cancelled."""


class Bury(Protocol):
    """Makes a dead letter."""

    async def __call__(self, delivery: NatsDelivery, reason: str, /) -> None:
        """Keep a dead letter."""


class NatsDelivery:
    """A job in a worker's hands.

    JetStream lets whoever once had a job hand it back or end it, though somebody else has it by now. So each delivery
    keeps the time by which it must have been refreshed, and says nothing after it but `ack`.
    """

    def __init__(
        self,
        connection: Connection,
        spec: QueueSpec,
        reply: Reply,
        receipt: Receipt,
        payload: bytes,
        *,
        is_cancelled: Cancelled,
        bury: Bury,
    ) -> None:
        self._connection = connection
        self._is_cancelled = is_cancelled
        self._bury = bury
        self._reply = reply
        self._is_settled = False
        self._epoch = connection.epoch
        self.receipt = receipt
        self.spec = spec
        self.payload = payload
        self._refresh()

    @property
    def queue(self) -> str:
        """See `Delivery.queue`."""
        return self.spec.name

    @property
    def msg_id(self) -> str:
        """See `Delivery.msg_id`."""
        return names.named(self._reply.subject.rsplit(".", 1)[-1], self._reply.headers.get(names.ID, ""))

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Delivery.headers`."""
        return {name: value for name, value in self._reply.headers.items() if name.islower()}

    @property
    def attempt(self) -> int:
        """See `Delivery.attempt`."""
        return self.receipt.delivered

    async def ack(self) -> None:
        """See `Delivery.ack`. Returns when the server knows."""
        self._is_settled = True
        await self._say(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        """See `Delivery.nak`."""
        if not self._holds():
            return
        if self.attempt >= self.spec.max_deliver:
            # The server would only notice at somebody's next pull.
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
        await self._bury(self, reason)
        await self._say(b"+TERM " + reason.encode()[:256].replace(b"\r", b" ").replace(b"\n", b" "))

    async def in_progress(self) -> None:
        """See `Delivery.in_progress`."""
        if await self._is_cancelled(self.spec.run_id):
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
        """Tell the server, until it has heard. False: it has forgotten the delivery, or the queue is gone.

        A server that crashed does not know what it has delivered in its last tenth of a second, and answers no word
        about it. Then the job will be given out again, and whoever gets it finds the result.
        """
        what = f"{word[:5].decode()} of job {self.msg_id!r}"
        patience, tries = Patience(self._connection, what), 0
        while True:
            is_new = self._connection.epoch == self._epoch
            try:
                reply = await self._connection.ask(
                    self._reply.reply_to, word, within_s=ANSWER_S if is_new else _FORGOTTEN_S
                )
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
