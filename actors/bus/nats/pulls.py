"""Pulling jobs: waiting at one queue, or looking through several, without stranding one when the wait is cancelled.

One queue: the request waits at the server. A wait that is cancelled takes back its interest first, so that the server
gives the job to somebody else, and hands back what was on its way.

Several: nobody can wait at several streams at once. A bell is rung at each submission, and of those who wait in this
process for the same queues the first one looks, queue by queue; if it finds something the next one looks too. They look
once a second besides: bells may be lost, and jobs that come back ring none.
"""

from __future__ import annotations

import asyncio
from collections import deque

import anyio
import msgspec
import structlog

from actors.bus.nats import names
from actors.bus.nats.blobs import Blobs
from actors.bus.nats.client import Reply
from actors.bus.nats.connection import Connection
from actors.bus.nats.deliveries import Bury, NatsDelivery
from actors.bus.nats.link import PARTING_S, PAUSE_S, Inbox, NoAnswerError
from actors.bus.nats.queues import Queues
from actors.bus.nats.wire import receipt_of
from messages.errors import BusError

log = structlog.get_logger(__name__)

WAIT_S = 5.0
"""How long a request waits at the server; if the server forgets it, so long is nobody woken."""
_PULSE_S = 1.0
"""How often the server says that it still has the request."""
_SILENCE_S = 2.5
"""After so long without a word the request was lost, with a server of a cluster that died."""
LOOK_S = 1.0
"""How often several queues are looked through without a bell."""
_KEPT = 256
"""Inboxes that wait to be used again."""
_LONG = msgspec.json.encode({"batch": 1, "expires": int(WAIT_S * 1e9), "idle_heartbeat": int(_PULSE_S * 1e9)})
_PULSE = "100"
_NOW = msgspec.json.encode({"batch": 1, "no_wait": True})


class Pulls:
    """All who wait for jobs in this process."""

    def __init__(self, connection: Connection, queues: Queues, blobs: Blobs, bury: Bury) -> None:
        self._connection = connection
        self._queues = queues
        self._blobs = blobs
        self._bury = bury
        self._idle: list[Inbox] = []
        self._bells: set[str] = set()
        self._waiting: deque[_Turn] = deque()

    async def pull(self, queues: tuple[str, ...]) -> NatsDelivery:
        """See `Bus.pull`."""
        for queue in queues:
            await self._queues.spec_of(queue)
        if len(queues) == 1:
            return await self._wait_at(queues[0])
        return await self._look_through(queues)

    # --- one queue ----------------------------------------------------------------------------------------------

    async def _wait_at(self, queue: str) -> NatsDelivery:
        while True:
            found = await self._take(queue, _LONG)
            if found is not None:
                return found

    async def _take(self, queue: str, request: bytes) -> NatsDelivery | None:
        """Ask once. None: there is no job, or not now."""
        inbox = await self._inbox()
        is_clean = False
        try:
            await inbox.ask(f"$JS.API.CONSUMER.MSG.NEXT.{names.job_stream(queue)}.{names.kind_of(queue)}", request)
            reply = await inbox.take(_SILENCE_S)
            while reply.status == _PULSE:
                reply = await inbox.take(_SILENCE_S)
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

    # --- several queues -----------------------------------------------------------------------------------------

    async def _look_through(self, queues: tuple[str, ...]) -> NatsDelivery:
        for kind in {names.kind_of(queue) for queue in queues} - self._bells:
            self._bells.add(kind)
            await self._connection.listen(names.bell(kind), self._rung)
        turn = _Turn(frozenset(queues))
        self._waiting.append(turn)
        try:
            while True:
                for queue in queues:
                    found = await self._take(queue, _NOW)
                    if found is not None:
                        self._wake(turn)
                        return found
                await turn.wait()
                while not turn.is_called and not self._is_first(turn):
                    await turn.wait()
                turn.clear()
        finally:
            self._waiting.remove(turn)

    def _rung(self, payload: bytes) -> None:
        queue = payload.decode(errors="replace")
        for turn in self._waiting:
            if queue in turn.queues and not turn.is_called:
                turn.call()
                return

    def _wake(self, after: _Turn) -> None:
        for turn in self._waiting:
            if turn is not after and turn.queues & after.queues:
                turn.call()
                return

    def _is_first(self, turn: _Turn) -> bool:
        return next(other for other in self._waiting if other.queues == turn.queues) is turn

    # --- both ---------------------------------------------------------------------------------------------------

    async def _delivery(self, queue: str, reply: Reply) -> NatsDelivery:
        receipt = receipt_of(reply.reply_to)
        if receipt is None:
            raise BusError(f"a job of {queue!r} came without a place for its acknowledgement: {reply.reply_to!r}")
        try:
            spec = await self._queues.spec_of(queue)
            payload = await self._blobs.restore(spec.run_id, reply.payload, reply.headers)
        except BaseException:
            await self._hand_back(reply)
            raise
        return NatsDelivery(
            self._connection,
            spec,
            reply,
            receipt,
            payload,
            is_cancelled=self._queues.is_cancelled,
            bury=self._bury,
        )

    async def _hand_back(self, reply: Reply) -> None:
        if receipt_of(reply.reply_to) is None:
            return
        with anyio.move_on_after(PARTING_S, shield=True):
            try:
                await self._connection.ask(reply.reply_to, b"-NAK", within_s=PARTING_S)
            except NoAnswerError as error:
                log.warning("a job could not be handed back; it comes back later", job=reply.subject, error=str(error))


class _Turn:
    """A wait for several queues."""

    def __init__(self, queues: frozenset[str]) -> None:
        self.queues = queues
        self._called = asyncio.Event()

    @property
    def is_called(self) -> bool:
        return self._called.is_set()

    def call(self) -> None:
        self._called.set()

    def clear(self) -> None:
        self._called.clear()

    async def wait(self) -> None:
        with anyio.move_on_after(LOOK_S):
            await self._called.wait()
