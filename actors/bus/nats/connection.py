"""A connection to JetStream: requests and replies, inboxes, and handling of connection loss.

A lost connection ends all waits at once, so no task sleeps through a reconnection. A request is repeated with the same
headers until it is answered or its time limit has passed, so executing it twice must do no harm; callers ensure this.
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
"""Seconds to wait for a reply before the request is repeated."""
PAUSE_S = 0.2
"""Pause between attempts while the server reports a temporary failure."""
_LOOK_S = 1.0
"""Interval between checks of the client's reconnect loop."""
_LONGEST_PAUSE_S = 16.0
"""Longest pause after restarting a reconnect loop; the pause doubles each time."""
PARTING_S = 2.0
"""Time limit for a cancelled task's clean-up."""

_BATCH = 512
_BATCH_BYTES = 8 << 20

_encode = msgspec.json.Encoder().encode


class NoAnswerError(BusError):
    """No reply came in time, or the connection was lost; the request may have been executed."""


class PatienceError(BusError):
    """The time limit for retries has passed."""


class NotAllowedError(BusError):
    """Server permissions forbid the request."""


class OverError(BusError):
    """The connection is permanently closed: the server no longer grants access, or the bus is closed."""


class Answer(Protocol):
    """Any of the reply types in `wire`."""

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
        """Subject and reply of each open request."""
        self._numbers = count(1)
        self._inboxes: set[Inbox] = set()
        self._up = asyncio.Event()
        self._failure = "the bus is not open"
        self.epoch = 0
        """Number of reconnections."""
        self._over = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. Raises `BusError` on failure."""
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
        """Wait until the connection is permanently closed. Returns the reason."""
        await self._over.wait()
        return self._failure

    @property
    def is_up(self) -> bool:
        """True while connected."""
        return self._up.is_set()

    @property
    def max_payload(self) -> int:
        """Largest message that the server accepts, including headers."""
        return self._client.max_payload

    async def _watch_client(self) -> None:
        """Restart the client's reconnect loop if it failed or is stuck; detect a closed client."""
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
        """Send one request.

        Raises:
            NoAnswerError: no reply came.
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
        """Repeat a request until answered. Returns the reply, and True if an earlier try may have been executed.

        When a cluster's leader dies, its pending requests are lost; the next leader answers new ones.

        Raises:
            BusError: no reply came for too long, the request is not allowed, or the bus is closed.
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
        """Open an inbox that receives several replies. Raises the errors of `ready`."""
        await self.ready("waiting for messages")
        inbox = Inbox(self, f"_INBOX_{self.options.role}.{uuid4().hex[:20]}")
        inbox.number = await self._client.listen(inbox.subject, inbox.arrived)
        self._inboxes.add(inbox)
        return inbox

    async def listen(self, subject: str, handler: Callable[[bytes], None]) -> None:
        """Pass messages on a core NATS subject to `handler` for the connection's lifetime; some may be lost."""
        await self.ready(f"listening to {subject}")
        await self._client.listen(subject, lambda reply: handler(reply.payload))

    async def tell(self, subject: str, payload: bytes, *, reply_to: str = "") -> None:
        """Send a message without waiting for a reply; it may be lost.

        Raises:
            NoAnswerError: the connection is lost.
            OverError: the bus is closed.
        """
        self._check_up()
        await self._publish(subject, payload, None, reply_to=reply_to)

    async def ready(self, what: str) -> None:
        """Wait for the connection. Raises `BusError` if it stays down too long or the bus is closed."""
        self._check()
        if not self._up.is_set():
            await Patience(self, what).take(f"{self.where} cannot be reached")

    async def until_up(self) -> None:
        """Wait for the connection, for ever."""
        await self._up.wait()

    async def part(self, inbox: Inbox, *, wait: bool) -> None:
        """Close an inbox; with `wait`, wait until no more messages arrive."""
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
        """Call the JetStream API.

        Raises:
            RefusedError: the server refuses.
            BusError: see `insist`.
        """
        payload = b"" if body is None else _encode(body)
        return await self._until_done(f"$JS.API.{request}", payload, None, kind, what=what)

    async def store(self, subject: str, payload: bytes, headers: dict[str, str], *, stream: str, what: str) -> Stored:
        """Publish to a stream, retrying until the server confirms the message.

        Raises:
            UnknownQueueError: there is no such stream.
            RefusedError: the server refuses.
            BusError: see `insist`; or the message is too large.
        """
        size = message_bytes(payload, headers)
        if size > self.max_payload:
            raise BusError(f"{what}: {size} bytes with headers; the server takes {self.max_payload}")
        try:
            return await self._until_done(subject, payload, headers, Stored, what=what, stream=stream)
        except PatienceError as error:
            # Seen with 2.15.1: after the disk was full, streams that were written to at that time stay silent.
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
        """Return a stream's info; None if it is missing."""
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
        """Create a stream. Raises the errors of `call`.

        If a stream is deleted while the folder of an earlier stream of the same name is still being removed, the next
        stream of that name inherits its messages (seen with nats-server 2.15.1). So messages older than the stream are
        purged.
        """
        made = await self.call(f"STREAM.CREATE.{config.name}", config, StreamInfo, what=what)
        if not made.is_haunted:
            return made
        await self.call(f"STREAM.PURGE.{config.name}", None, Nothing, what=what)
        return await self.call(f"STREAM.INFO.{config.name}", None, StreamInfo, what=what)

    async def drop_stream(self, stream: str) -> None:
        """Delete a stream if it exists."""
        try:
            await self.call(f"STREAM.DELETE.{stream}", None, Nothing, what=f"deleting {stream}")
        except RefusedError as error:
            if error.code != STREAM_NOT_FOUND:
                raise

    async def _refuse(self, fault: Fault, patience: Patience, what: str, *, is_retry: bool) -> None:
        """Raise a permanent refusal; pause and return after a transient one."""
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
    """A private subject with messages that are queued until they are taken."""

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection = connection
        self.subject = subject
        self.number = 0
        self.asked = ""
        self.is_broken = False
        """True once the connection was lost; requested messages may still arrive, or never."""
        self._arrived: deque[Reply] = deque()
        self._waits: asyncio.Future[None] | None = None
        self._failure: BusError | None = None

    async def ask(self, subject: str, payload: bytes) -> None:
        """Request messages to this inbox. Raises the errors of `Connection.tell`."""
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
        """Return the next stored messages after a sequence number, a few hundred at most.

        Raises:
            NoAnswerError: the reply was incomplete.
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
        """Close the inbox. Returns messages that were not taken."""
        with anyio.CancelScope(shield=True):
            await self._connection.part(self, wait=True)
        return list(self._arrived)

    async def drop(self) -> None:
        """Close without waiting for messages."""
        with anyio.CancelScope(shield=True):
            await self._connection.part(self, wait=False)


class Patience:
    """Time limit for retrying an operation."""

    def __init__(self, connection: Connection, what: str) -> None:
        self._connection = connection
        self._what = what
        self._began = asyncio.get_running_loop().time()

    async def take(self, why: str) -> None:
        """Wait before the next try. Raises `PatienceError` when the time limit has passed."""
        patience_s = self._connection.options.patience_s
        with anyio.move_on_after(self._began + patience_s - anyio.current_time()):
            await anyio.sleep(PAUSE_S)
            await self._connection.until_up()
            return
        raise PatienceError(f"{self._what}: {why}; tried for {patience_s:.0f} s")


def decoded(payload: bytes, kind: type[A], what: str) -> A:
    """Parse a reply. Raises `BusError` if it is malformed."""
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BusError(f"{what}: an answer that cannot be read: {error}") from error


def message_bytes(payload: bytes, headers: Mapping[str, str]) -> int:
    """Return the message size as the server counts it: payload plus headers."""
    values = sum(len(value) if value.isascii() else len(value.encode()) for value in headers.values())
    return len(payload) + 12 + values + sum(len(name) + 4 for name in headers)
