"""The link to the server: single questions, inboxes for those who wait longer, and what happens when it is lost.

A lost connection ends all waiting at once, so nobody sleeps through a reconnection. What was asked for meanwhile, and
how often it is asked again, is `actors.bus.nats.connection`'s.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import Protocol
from uuid import uuid4

import anyio
import structlog
from nats.errors import Error as NatsError

from actors.bus.nats.client import Callbacks, Reply, WireClient, connect
from actors.bus.nats.names import NatsOptions
from messages.base import BusError

log = structlog.get_logger(__name__)

ANSWER_S = 5.0
"""How long an answer may take before the question is asked again."""
_TRIES_S = (1.0, 1.0, 1.0, 2.0)
"""How long each of several tries waits for an answer; a new leader takes four to nine seconds to be elected."""
PAUSE_S = 0.2
"""Between tries, while the server answers that it cannot just now."""
_LOOK_S = 1.0
"""Interval between looks at the client's reconnect loop."""
_LONGEST_PAUSE_S = 16.0
"""Upper bound of the pause after a reconnect loop was started over; the pause doubles each time."""
PARTING_S = 2.0
"""How long clean-up may take that a cancelled task waits for."""


class NoAnswerError(BusError):
    """Nothing came back in time, or the connection was lost; whether the question was carried out is not known."""


class _LateError(NoAnswerError):
    """Nothing came back in time."""


class PatienceError(BusError):
    """It was tried for as long as it may be."""


class NotAllowedError(BusError):
    """The server's permissions forbid it."""


class OverError(BusError):
    """The connection is over for good: the server does not let us in any more, or the bus is closed."""


class Link:
    """One client's socket, and who waits for what on it."""

    def __init__(self, options: NatsOptions) -> None:
        self.options = options
        self.where = ", ".join(options.servers)
        self._inbox = f"_INBOX_{options.role}.{uuid4().hex[:20]}"
        self._client = WireClient()
        self._asked: dict[str, _Question] = {}
        self._numbers = count(1)
        self._inboxes: set[Inbox] = set()
        self._up = asyncio.Event()
        self._failure = "the bus is not open"
        self.epoch = 0
        """How often it was connected anew."""
        self._over = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. Raises `BusError` if that cannot be done."""
        self._client = await connect(
            self.options, Callbacks(self._on_denied, self._on_disconnected, self._on_reconnected, self._on_closed)
        )
        self._failure = ""
        await self._client.listen(f"{self._inbox}.*", self._on_answer)
        self._up.set()
        self._watch = asyncio.create_task(self._watch_client())

    async def close(self) -> None:
        """Let go; whoever still waits gets a `BusError`."""
        self._on_closed("it was closed here")
        if self._watch is not None:
            self._watch.cancel()
        with anyio.CancelScope(shield=True):
            await self._client.give_up()

    async def over(self) -> str:
        """Wait until the connection is over for good. Returns why."""
        await self._over.wait()
        return self._failure

    @property
    def is_up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set()

    @property
    def max_payload(self) -> int:
        """Most bytes that the server takes in one message, headers included."""
        return self._client.max_payload

    async def _watch_client(self) -> None:
        """Start the client's reconnect loop over when it ended by an error or stands still; notice a closed client."""
        pause_s = _LOOK_S
        while not self._failure:
            await asyncio.sleep(pause_s)
            if self._client.is_closed:
                self._on_closed("nats-py has closed it")
            elif self._up.is_set() and self._client.is_connected:
                pause_s = _LOOK_S
            elif not self._client.is_trying:
                log.warning(
                    "the attempt to reconnect is started over", server=self.where, ended=self._client.start_over()
                )
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    # --- one question -------------------------------------------------------------------------------------------

    async def ask(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None, *, within_s: float = ANSWER_S
    ) -> Reply:
        """Ask once.

        Raises:
            NoAnswerError: no answer came.
            NotAllowedError: the server forbids it.
            BusError: the bus is closed.
        """
        reply, _ = await self._exchange(subject, payload, headers, (within_s,))
        return reply

    async def ask_often(self, subject: str, payload: bytes, headers: dict[str, str] | None) -> tuple[Reply, bool]:
        """Ask, and ask again while no answer comes. Returns the first answer, and whether it was asked again.

        In a cluster a leader that died takes the questions along that it had; the next one answers new ones.

        Raises:
            NoAnswerError: no answer came to any of them.
            NotAllowedError: the server forbids it.
            BusError: the bus is closed.
        """
        return await self._exchange(subject, payload, headers, _TRIES_S)

    async def _exchange(
        self, subject: str, payload: bytes, headers: dict[str, str] | None, tries_s: tuple[float, ...]
    ) -> tuple[Reply, bool]:
        self._check()
        if not self._up.is_set():
            raise NoAnswerError(f"{self.where} cannot be reached")
        loop = asyncio.get_running_loop()
        token = f"{next(self._numbers):x}"
        try:
            for number, within_s in enumerate(tries_s):
                # All tries have the same place for the answer: a late one counts too.
                question = self._asked[token] = _Question(subject, loop.create_future())
                timer = loop.call_later(within_s, question.late)
                try:
                    await self._publish(subject, payload, headers, reply_to=f"{self._inbox}.{token}")
                    return await question.answer, number > 0
                except _LateError:
                    continue
                finally:
                    timer.cancel()
                    question.forget()
            raise NoAnswerError(f"{self.where} did not answer in {sum(tries_s):g} s")
        finally:
            del self._asked[token]

    # --- waiting longer -----------------------------------------------------------------------------------------

    async def open_inbox(self) -> Inbox:
        """Make a place for answers that come one after another.

        Raises:
            BusError: see `ready`.
        """
        await self.ready("waiting for messages")
        inbox = Inbox(self, f"_INBOX_{self.options.role}.{uuid4().hex[:20]}")
        inbox.number = await self._client.listen(inbox.subject, inbox.arrived)
        self._inboxes.add(inbox)
        return inbox

    async def listen(self, subject: str, handler: _Heard) -> None:
        """Have messages of a plain subject handled for as long as the connection; some may be lost."""
        await self.ready(f"listening to {subject}")
        await self._client.listen(subject, lambda reply: handler(reply.payload))

    async def tell(self, subject: str, payload: bytes, *, reply_to: str = "") -> None:
        """Send without waiting for an answer; it may be lost.

        Raises:
            NoAnswerError: the connection is lost.
            BusError: the bus is closed.
        """
        self._check()
        if not self._up.is_set():
            raise NoAnswerError(f"{self.where} cannot be reached")
        await self._publish(subject, payload, None, reply_to=reply_to)

    async def ready(self, what: str) -> None:
        """Wait until there is a connection.

        Raises:
            BusError: there was none for too long, or the bus is closed.
        """
        self._check()
        if not self._up.is_set():
            await Patience(self, what).take(f"{self.where} cannot be reached")

    async def until_up(self) -> None:
        """Wait for the connection, for ever."""
        await self._up.wait()

    async def part(self, inbox: Inbox, *, wait: bool) -> None:
        """End an inbox; `wait` until nothing more arrives in it."""
        self._inboxes.discard(inbox)
        try:
            if self._up.is_set() and not inbox.is_broken:
                await self._client.hush(inbox.number)
            if self._up.is_set() and not inbox.is_broken and wait:
                with anyio.move_on_after(PARTING_S):
                    await self._client.round_trip(int(PARTING_S))
        except NatsError as error:
            log.debug("an inbox was left behind", error=str(error))
        finally:
            self._client.forget(inbox.number)

    def _check(self) -> None:
        if self._failure:
            raise OverError(f"the connection to {self.where} is over: {self._failure}")

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str] | None, *, reply_to: str) -> None:
        try:
            await self._client.publish(subject, payload, reply=reply_to, headers=headers)
        except (NatsError, OSError) as error:
            raise NoAnswerError(f"cannot send to {self.where}: {error}") from error

    # --- what nats-py tells; nothing here may wait or raise --------------------------------------------------------

    def _on_answer(self, reply: Reply) -> None:
        question = self._asked.get(reply.subject.rsplit(".", 1)[-1])
        if question is not None:
            question.succeed(reply)

    def _on_denied(self, _: str, subject: str) -> None:
        error = NotAllowedError(f"{self.where} does not allow {self.options.role!r} to use {subject!r}")
        is_told = False
        if subject.startswith(self._inbox.lower()):
            self._on_closed(f"it may not receive answers in {self._inbox!r}")
        for question in self._asked.values():
            if question.subject.lower() == subject:
                question.fail(error)
                is_told = True
        for inbox in self._inboxes:
            if subject in (inbox.asked.lower(), inbox.subject.lower()):
                inbox.fail(error)
                is_told = True
        if not is_told:
            log.warning("not allowed", subject=subject, role=self.options.role)

    def _on_disconnected(self) -> None:
        if self._up.is_set() and not self._failure:
            log.warning("the server is away; trying to reach it again", server=self.where)
        self._up.clear()
        error = NoAnswerError(f"the connection to {self.where} was lost")
        for question in self._asked.values():
            question.fail(error)
        for inbox in self._inboxes:
            inbox.is_broken = True
            inbox.fail(error)

    def _on_reconnected(self) -> None:
        if not self._failure:
            log.info("the server is there again", server=self.where)
            self.epoch += 1
            self._up.set()

    def _on_closed(self, why: str) -> None:
        if not self._failure:
            self._failure = why or "the server closed it"
        error = OverError(f"the connection to {self.where} is over: {self._failure}")
        for question in self._asked.values():
            question.fail(error)
        for inbox in self._inboxes:
            inbox.is_broken = True
            inbox.fail(error)
        self._over.set()
        self._up.set()  # whoever waits for it looks, and finds the failure


class _Heard(Protocol):
    def __call__(self, payload: bytes, /) -> None: ...


class _Question:
    def __init__(self, subject: str, answer: asyncio.Future[Reply]) -> None:
        self.subject = subject
        self.answer = answer

    def succeed(self, reply: Reply) -> None:
        if not self.answer.done():
            self.answer.set_result(reply)

    def fail(self, error: BusError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def late(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(_LateError())

    def forget(self) -> None:
        """Nobody waits any more: a failure that came meanwhile is nobody's."""
        if self.answer.done() and not self.answer.cancelled():
            self.answer.exception()


class Inbox:
    """A subject of its own: what arrives there is kept until it is taken."""

    def __init__(self, link: Link, subject: str) -> None:
        self._link = link
        self.subject = subject
        self.number = 0
        self.asked = ""
        self.is_broken = False
        """The connection was lost since; what was asked for may still come, or never."""
        self._arrived: deque[Reply] = deque()
        self._waits: asyncio.Future[None] | None = None
        self._failure: BusError | None = None

    async def ask(self, subject: str, payload: bytes) -> None:
        """Ask for messages to this inbox.

        Raises:
            BusError: see `Link.tell`.
        """
        self.asked = subject
        await self._link.tell(subject, payload, reply_to=self.subject)

    async def take(self, within_s: float) -> Reply:
        """Wait for the next message.

        Raises:
            NoAnswerError: none came, or the connection was lost.
            BusError: not allowed, or closed.
        """
        if not self._arrived:
            if self._failure is not None:
                raise self._failure
            loop = asyncio.get_running_loop()
            self._waits = loop.create_future()
            timer = loop.call_later(within_s, self._late)
            try:
                await self._waits
            finally:
                timer.cancel()
                self._waits = None
        return self._arrived.popleft()

    def arrived(self, reply: Reply) -> None:
        """Keep a message."""
        self._arrived.append(reply)
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    def fail(self, error: BusError) -> None:
        """Have whoever waits told that nothing more will come."""
        self._failure = error
        if self._waits is not None and not self._waits.done():
            self._waits.set_exception(error)

    async def close(self) -> list[Reply]:
        """End it. Returns what arrived and was not taken."""
        with anyio.CancelScope(shield=True):
            await self._link.part(self, wait=True)
        return list(self._arrived)

    async def drop(self) -> None:
        """End it; nothing that still arrives matters."""
        with anyio.CancelScope(shield=True):
            await self._link.part(self, wait=False)

    def _late(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_exception(NoAnswerError("nothing came"))


class Patience:
    """How long a thing is tried again."""

    def __init__(self, link: Link, what: str) -> None:
        self._link = link
        self._what = what
        self._began = asyncio.get_running_loop().time()

    async def take(self, why: str) -> None:
        """Wait before the next try.

        Raises:
            PatienceError: it has been tried for long enough.
        """
        left = self._began + self._link.options.patience_s - anyio.current_time()
        with anyio.move_on_after(left):
            await anyio.sleep(PAUSE_S)
            await self._link.until_up()
            return
        raise PatienceError(f"{self._what}: {why}; tried for {self._link.options.patience_s:.0f} s")
