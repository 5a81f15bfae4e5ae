"""A connection to JetStream: questions and answers, inboxes, and what happens when the connection is lost.

A lost connection ends all waits at once, so no task sleeps through a reconnection. A question is asked again, with the
same headers, until it is answered or the patience is over: callers see to it that being carried out twice does no harm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Protocol, TypeVar
from uuid import uuid4

import anyio
import msgspec
import structlog
from nats.errors import Error as NatsError

from actors.bus.base import UnknownQueueError
from actors.bus.nats.client import Callbacks, Reply, WireClient, connect
from actors.bus.nats.names import NatsOptions
from actors.bus.nats.wire import (
    NO_ROOM,
    STREAM_NOT_FOUND,
    TRANSIENT,
    Fault,
    Nothing,
    RefusedError,
    Stored,
    StreamConfig,
    StreamInfo,
)
from messages.base import BusError

log = structlog.get_logger(__name__)

ANSWER_S = 5.0
"""Longest time for an answer before the question is asked again."""
PAUSE_S = 0.2
"""Pause between tries while the server answers that it cannot just now."""
_LOOK_S = 1.0
"""Interval between looks at the client's reconnect loop."""
_LONGEST_PAUSE_S = 16.0
"""Upper bound of the pause after a reconnect loop was started over; the pause doubles each time."""
PARTING_S = 2.0
"""Longest clean-up of a cancelled task."""

_BATCH = 512
_BATCH_BYTES = 8 << 20

_encode = msgspec.json.Encoder().encode


class NoAnswerError(BusError):
    """Nothing came back in time, or the connection was lost; the question may have been carried out."""


class PatienceError(BusError):
    """It was tried for as long as allowed."""


class NotAllowedError(BusError):
    """The server's permissions forbid it."""


class OverError(BusError):
    """The connection is over for good: the server does not let us in any more, or the bus is closed."""


class Answer(Protocol):
    """Any of the answers in `wire`."""

    @property
    def error(self) -> Fault | None:
        """Reason for a refusal."""


A = TypeVar("A", bound=Answer)


class Connection:
    """One client's socket, and the tasks that wait for messages on it."""

    def __init__(self, options: NatsOptions) -> None:
        self.options = options
        self.where = ", ".join(options.servers)
        self._inbox = f"_INBOX_{options.role}.{uuid4().hex[:20]}"
        self._client = WireClient()
        self._asked: dict[str, tuple[str, asyncio.Future[Reply]]] = {}
        """Subject and answer of each question."""
        self._numbers = count(1)
        self._inboxes: set[Inbox] = set()
        self._up = asyncio.Event()
        self._failure = "the bus is not open"
        self.epoch = 0
        """Number of reconnections."""
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
        """Close; waiting tasks get a `BusError`."""
        self._on_closed("it was closed here")
        if self._watch is not None:
            self._watch.cancel()
        with anyio.CancelScope(shield=True):
            await self._client.give_up()

    async def over(self) -> str:
        """Wait until the connection is over for good. Returns the reason."""
        await self._over.wait()
        return self._failure

    @property
    def is_up(self) -> bool:
        """True while connected."""
        return self._up.is_set()

    @property
    def max_payload(self) -> int:
        """Largest message that the server takes, headers included."""
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
                ended = self._client.start_over()
                log.warning("the attempt to reconnect is started over", server=self.where, ended=ended)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    # --- single questions ---------------------------------------------------------------------------------------

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        *,
        within_s: float = ANSWER_S,
    ) -> Reply:
        """Ask once.

        Raises:
            NoAnswerError: no answer came.
            NotAllowedError: the server forbids it.
            OverError: the bus is closed.
        """
        self._check_up()
        loop = asyncio.get_running_loop()
        token = f"{next(self._numbers):x}"
        answer: asyncio.Future[Reply] = loop.create_future()
        self._asked[token] = (subject, answer)
        late = NoAnswerError(f"{self.where} did not answer in {within_s:g} s")
        timer = loop.call_later(within_s, _fail, answer, late)
        try:
            await self._publish(subject, payload, headers, reply_to=f"{self._inbox}.{token}")
            return await answer
        finally:
            timer.cancel()
            del self._asked[token]
            if answer.done() and not answer.cancelled():
                answer.exception()  # a failure that came meanwhile has no task waiting for it

    async def insist(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None, *, what: str
    ) -> tuple[Reply, bool]:
        """Ask until there is an answer. Returns it, and True if an earlier try may have been carried out.

        In a cluster a leader that died takes the questions along that it had; the next one answers new ones.

        Raises:
            BusError: there was none for too long, it is not allowed, or the bus is closed.
        """
        patience = Patience(self, what)
        is_retry = False
        while True:
            try:
                return await self.ask(subject, payload, headers), is_retry
            except NoAnswerError as error:
                is_retry = True
                await patience.take(str(error))

    # --- waiting longer -----------------------------------------------------------------------------------------

    async def open_inbox(self) -> Inbox:
        """Make a place for answers that come one after another. Raises as `ready` does."""
        await self.ready("waiting for messages")
        inbox = Inbox(self, f"_INBOX_{self.options.role}.{uuid4().hex[:20]}")
        inbox.number = await self._client.listen(inbox.subject, inbox.arrived)
        self._inboxes.add(inbox)
        return inbox

    async def listen(self, subject: str, handler: Callable[[bytes], None]) -> None:
        """Have messages of a plain subject handled for as long as the connection; some may be lost."""
        await self.ready(f"listening to {subject}")
        await self._client.listen(subject, lambda reply: handler(reply.payload))

    async def tell(self, subject: str, payload: bytes, *, reply_to: str = "") -> None:
        """Send without waiting for an answer; it may be lost.

        Raises:
            NoAnswerError: the connection is lost.
            OverError: the bus is closed.
        """
        self._check_up()
        await self._publish(subject, payload, None, reply_to=reply_to)

    async def ready(self, what: str) -> None:
        """Wait for the connection. Raises `BusError` if there was none for too long, or the bus is closed."""
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

    def _check_up(self) -> None:
        self._check()
        if not self._up.is_set():
            raise NoAnswerError(f"{self.where} cannot be reached")

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str] | None, *, reply_to: str) -> None:
        try:
            await self._client.publish(subject, payload, reply=reply_to, headers=headers)
        except (NatsError, OSError) as error:
            raise NoAnswerError(f"cannot send to {self.where}: {error}") from error

    # --- callbacks of nats-py; nothing here may wait or raise -----------------------------------------------------

    def _on_answer(self, reply: Reply) -> None:
        _, answer = self._asked.get(reply.subject.rsplit(".", 1)[-1], ("", None))
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def _on_denied(self, _: str, subject: str) -> None:
        error = NotAllowedError(f"{self.where} does not allow {self.options.role!r} to use {subject!r}")
        if subject.startswith(self._inbox.lower()):
            self._on_closed(f"it may not receive answers in {self._inbox!r}")
        answers = [answer for asked, answer in self._asked.values() if asked.lower() == subject]
        inboxes = [box for box in self._inboxes if subject in (box.asked.lower(), box.subject.lower())]
        for answer in answers:
            _fail(answer, error)
        for inbox in inboxes:
            inbox.fail(error)
        if not answers and not inboxes:
            log.warning("not allowed", subject=subject, role=self.options.role)

    def _on_disconnected(self) -> None:
        if self._up.is_set() and not self._failure:
            log.warning("the server is away; trying to reach it again", server=self.where)
        self._up.clear()
        self._fail_all(NoAnswerError(f"the connection to {self.where} was lost"))

    def _on_reconnected(self) -> None:
        if not self._failure:
            log.info("the server is there again", server=self.where)
            self.epoch += 1
            self._up.set()

    def _on_closed(self, why: str) -> None:
        if not self._failure:
            self._failure = why or "the server closed it"
        self._fail_all(OverError(f"the connection to {self.where} is over: {self._failure}"))
        self._over.set()
        self._up.set()  # waiting tasks look, and find the failure

    def _fail_all(self, error: BusError) -> None:
        for _, answer in self._asked.values():
            _fail(answer, error)
        for inbox in self._inboxes:
            inbox.is_broken = True
            inbox.fail(error)

    # --- JetStream ----------------------------------------------------------------------------------------------

    async def call(self, request: str, body: object, kind: type[A], *, what: str) -> A:
        """Ask JetStream's interface.

        Raises:
            RefusedError: it says no.
            BusError: see `insist`.
        """
        payload = b"" if body is None else _encode(body)
        return await self._until_done(f"$JS.API.{request}", payload, None, kind, what=what)

    async def store(self, subject: str, payload: bytes, headers: dict[str, str], *, stream: str, what: str) -> Stored:
        """Publish into a stream, until the server confirms the message.

        Raises:
            UnknownQueueError: there is no such stream.
            RefusedError: the server says no.
            BusError: see `insist`; or the message is too large.
        """
        size = message_bytes(payload, headers)
        if size > self.max_payload:
            raise BusError(f"{what}: {size} bytes with headers; the server takes {self.max_payload}")
        try:
            return await self._until_done(subject, payload, headers, Stored, what=what, stream=stream)
        except PatienceError as error:
            # Seen with 2.15.1: a disk that was full once silences the streams that were written to meanwhile.
            hint = "a server that ran out of disk space stays silent until it is started again: see its log"
            raise PatienceError(f"{error}; {hint}") from error

    async def _until_done(
        self,
        subject: str,
        payload: bytes,
        headers: dict[str, str] | None,
        kind: type[A],
        *,
        what: str,
        stream: str = "",
    ) -> A:
        patience = Patience(self, what)
        was_retry = False
        while True:
            reply, is_retry = await self.insist(subject, payload, headers, what=what)
            was_retry |= is_retry
            if reply.status and stream:
                await self.check_stream(stream, what)
                await patience.take("its stream has no leader")
            elif reply.status:
                await patience.take(f"JetStream is not there ({reply.status} {reply.description})")
            else:
                answer = decoded(reply.payload, kind, what)
                if answer.error is None:
                    return answer
                await self._refuse(answer.error, patience, what, is_retry=was_retry)

    async def read(self, stream: str, subject: str, *, what: str) -> Reply | None:
        """Return the last message of one subject, or None.

        Raises:
            UnknownQueueError: there is no such stream.
            BusError: see `insist`.
        """
        patience = Patience(self, what)
        while True:
            reply, _ = await self.insist(f"$JS.API.DIRECT.GET.{stream}.{subject}", what=what)
            if not reply.status:
                return reply
            if reply.status == "404":
                return None
            await self.check_stream(stream, what)
            await patience.take(f"{reply.status} {reply.description}")

    async def info(self, stream: str, *, what: str) -> StreamInfo | None:
        """Describe a stream; None if there is none."""
        try:
            return await self.call(f"STREAM.INFO.{stream}", None, StreamInfo, what=what)
        except RefusedError as error:
            if error.code == STREAM_NOT_FOUND:
                return None
            raise

    async def check_stream(self, stream: str, what: str) -> None:
        """Raise `UnknownQueueError` if there is no such stream."""
        if await self.info(stream, what=what) is None:
            raise UnknownQueueError(f"{what}: there is no stream {stream!r}")

    async def make_stream(self, config: StreamConfig, *, what: str) -> StreamInfo:
        """Make a stream. Raises as `call` does.

        A stream that is deleted while the folder of an earlier one of its name is still being removed leaves its
        messages to the next of that name (seen with nats-server 2.15.1): messages older than the stream are purged.
        """
        made = await self.call(f"STREAM.CREATE.{config.name}", config, StreamInfo, what=what)
        if not made.is_haunted:
            return made
        await self.call(f"STREAM.PURGE.{config.name}", None, Nothing, what=what)
        return await self.call(f"STREAM.INFO.{config.name}", None, StreamInfo, what=what)

    async def drop_stream(self, stream: str) -> None:
        """Delete a stream, if it is there."""
        try:
            await self.call(f"STREAM.DELETE.{stream}", None, Nothing, what=f"deleting {stream}")
        except RefusedError as error:
            if error.code != STREAM_NOT_FOUND:
                raise

    async def _refuse(self, fault: Fault, patience: Patience, what: str, *, is_retry: bool) -> None:
        """Raise a refusal; return after a pause if it may pass by itself."""
        said = f"{fault.description!r} ({fault.err_code})"
        if fault.err_code in NO_ROOM:
            await patience.take(f"the server has no room: {said}")
        elif fault.err_code in TRANSIENT or (fault.code == 503 and fault.err_code == 0):
            await patience.take(f"the server says {said}")
        else:
            raise RefusedError(f"{what}: the server says {said}", fault, is_retry=is_retry)


def _fail(answer: asyncio.Future[Reply], error: BusError) -> None:
    if not answer.done():
        answer.set_exception(error)


class Inbox:
    """A subject of its own; messages are kept until they are taken."""

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection = connection
        self.subject = subject
        self.number = 0
        self.asked = ""
        self.is_broken = False
        """The connection was lost since; requested messages may still come, or never."""
        self._arrived: deque[Reply] = deque()
        self._waits: asyncio.Future[None] | None = None
        self._failure: BusError | None = None

    async def ask(self, subject: str, payload: bytes) -> None:
        """Ask for messages to this inbox. Raises as `Connection.tell` does."""
        self.asked = subject
        await self._connection.tell(subject, payload, reply_to=self.subject)

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
            timer = loop.call_later(within_s, self._wake, NoAnswerError("nothing came"))
            try:
                await self._waits
            finally:
                timer.cancel()
                self._waits = None
        return self._arrived.popleft()

    async def stored(self, stream: str, *, after: int, subject: str = ">") -> list[Reply]:
        """Ask for the next stored messages behind a sequence number, some hundreds at most.

        Raises:
            NoAnswerError: the answer did not come as a whole.
            BusError: not allowed, or closed.
        """
        body = {"seq": after + 1, "next_by_subj": subject, "batch": _BATCH, "max_bytes": _BATCH_BYTES}
        await self.ask(f"$JS.API.DIRECT.GET.{stream}", _encode(body))
        found: list[Reply] = []
        while True:
            reply = await self.take(ANSWER_S)
            if not reply.status:
                found.append(reply)
            elif reply.status in ("204", "404"):
                return found
            else:
                raise NoAnswerError(f"{reply.status} {reply.description}")

    def arrived(self, reply: Reply) -> None:
        """Keep a message."""
        self._arrived.append(reply)
        self._wake(None)

    def fail(self, error: BusError) -> None:
        """Report to the waiting task that nothing more will come."""
        self._failure = error
        self._wake(error)

    def _wake(self, error: BusError | None) -> None:
        if self._waits is None or self._waits.done():
            return
        if error is None:
            self._waits.set_result(None)
        else:
            self._waits.set_exception(error)

    async def close(self) -> list[Reply]:
        """End it. Returns messages that were not taken."""
        with anyio.CancelScope(shield=True):
            await self._connection.part(self, wait=True)
        return list(self._arrived)

    async def drop(self) -> None:
        """End it, whatever still arrives."""
        with anyio.CancelScope(shield=True):
            await self._connection.part(self, wait=False)


class Patience:
    """Time for which something is tried again."""

    def __init__(self, connection: Connection, what: str) -> None:
        self._connection = connection
        self._what = what
        self._began = asyncio.get_running_loop().time()

    async def take(self, why: str) -> None:
        """Wait before the next try. Raises `PatienceError` if it has been tried for long enough."""
        patience_s = self._connection.options.patience_s
        with anyio.move_on_after(self._began + patience_s - anyio.current_time()):
            await anyio.sleep(PAUSE_S)
            await self._connection.until_up()
            return
        raise PatienceError(f"{self._what}: {why}; tried for {patience_s:.0f} s")


def decoded(payload: bytes, kind: type[A], what: str) -> A:
    """Parse an answer. Raises `BusError` if it is none."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BusError(f"{what}: an answer that cannot be read: {error}") from error


def message_bytes(payload: bytes, headers: Mapping[str, str]) -> int:
    """Return the size that the server counts: the payload and its headers."""
    values = sum(len(value) if value.isascii() else len(value.encode()) for value in headers.values())
    return len(payload) + 12 + values + sum(len(name) + 4 for name in headers)
