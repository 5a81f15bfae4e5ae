"""The HTTP client below the openai package: notes each failed try, and reads streamed answers until they are complete.

It bounds the size of an answer, makes a broken stream a failed try, and soon gives up on an address that has never
answered. A complete answer is read on for `patience_chars`: only an endpoint that ends by itself reports the cost.
"""

from __future__ import annotations

import json
import math
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, Protocol

import anyio
import httpx2
import msgspec
import openai
import structlog

from actors.llm.base import Ending, masked
from actors.llm.limits import tell_gate
from messages.base import EndpointFault, Usage

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""100,000 tokens with their hidden reasoning have less than 1 MiB."""
MAX_STREAM_BYTES: Final = 64 * 1024 * 1024
"""The same for a stream: some endpoints send 300 bytes and more for each token."""
CONNECT_TIMEOUT_S: Final = 5.0
GIVE_UP_AFTER_S: Final = 2.5
"""An address that was never reached and refuses for this long is wrong. With the package's pauses this is the fourth
try."""
_CONNECTION_FAILURES: Final = (httpx2.RequestError, ssl.SSLError, anyio.EndOfStream)
_EVENT_STREAM: Final = "text/event-stream"
_TROUBLE_S: Final = 10.0
"""Seconds of failure after which an endpoint that answered before is worth a notice."""
_SHOWN: Final = 200


class Call:
    """A call in progress, over all its tries."""

    def __init__(self, faults: list[EndpointFault], begin: Callable[[], Gathering] | None) -> None:
        self.faults = faults
        self.begin = begin
        """Begins to assemble a streamed try."""
        self.gathered: Gathering | None = None
        """Answer of the successful try, if it was streamed."""


_current: ContextVar[Call] = ContextVar("the call in progress")

log = structlog.get_logger(__name__)


class NeverReachedError(openai.OpenAIError):
    """This address has never answered, and refuses connections."""


@contextmanager
def noting(faults: list[EndpointFault], begin: Callable[[], Gathering] | None = None) -> Iterator[Call]:
    """Append the failed tries of this task to `faults`; `begin` assembles a streamed one."""
    call = Call(faults, begin)
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


class TryingClient(openai.DefaultAsyncHttpxClient):
    """The connections to one endpoint."""

    def __init__(self, *, timeout_s: float, secret: str = "", is_encrypted: bool = True) -> None:
        """Prepare; nothing is sent yet.

        Args:
            timeout_s: for each read; connecting may take `CONNECT_TIMEOUT_S` at most.
            secret: never shown in a fault.
            is_encrypted: False for `http:`: certificates are not loaded (slow), and redirections are not followed.
        """
        super().__init__(timeout=timeout_of(timeout_s), verify=is_encrypted, follow_redirects=is_encrypted)
        self._secret = secret
        self._reached = False
        self._worked = False
        self._failing_since: float | None = None
        self._said = False

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send one try and read the whole answer; of a stream only as much as is needed.

        Raises:
            AnswerTooLongError: it does not end.
            NotUnderstoodError: it is a stream of another kind.
            NeverReachedError: the endpoint never answered.
            httpx2.RequestError: no answer; noted.
        """
        started = anyio.current_time()
        try:
            response = await super().send(request, **{**options, "stream": True})
            await _read(response, request)
        except _CONNECTION_FAILURES as error:
            fault = self.note(_fault_of_error(error), started)
            if fault.kind == "unreachable" and not self._reached and self._failing_for_s() >= GIVE_UP_AFTER_S:
                raise NeverReachedError(fault.detail) from error
            raise
        except (AnswerTooLongError, NotUnderstoodError) as error:
            kind = "too_long" if isinstance(error, AnswerTooLongError) else "malformed"
            self.note(EndpointFault(kind=kind, detail=str(error)), started)
            raise
        self._reached = True
        if response.is_error:
            if is_spent(response.status_code, _error_field(response.text, "code")):
                response.headers["x-should-retry"] = "false"  # the openai package heeds it
            self.note(_fault_of_status(response), started)
        else:
            self._worked, self._failing_since, self._said = True, None, False
        return response

    def note(self, fault: EndpointFault, started: float) -> EndpointFault:
        """Add a fault to the call in progress; return it with the time since `started`."""
        now = anyio.current_time()
        detail = _shortened(masked(fault.detail, self._secret))
        noted = msgspec.structs.replace(fault, detail=detail, elapsed_s=round(now - started, 3))
        call = _current.get(None)
        if call is not None:
            call.faults.append(noted)
        tell_gate(noted)
        if self._failing_since is None:
            self._failing_since = now
        # Warn once per period of trouble: at once if nothing has ever worked, later if it lasts.
        is_trouble = fault.kind != "refused" and (not self._worked or self._failing_for_s() >= _TROUBLE_S)
        say = log.warning if is_trouble and not self._said else log.info
        self._said = self._said or is_trouble
        say("the model's endpoint fails; trying again", fault=noted.words, detail=noted.detail)
        return noted

    def _failing_for_s(self) -> float:
        return 0.0 if self._failing_since is None else anyio.current_time() - self._failing_since


def timeout_of(timeout_s: float) -> httpx2.Timeout:
    """Return the limits of one try."""
    return httpx2.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, limit_bytes: int) -> None:
        self._body = body
        self._limit_bytes = limit_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size_bytes = 0
        async for chunk in self._body:
            size_bytes += len(chunk)
            if size_bytes > self._limit_bytes:
                raise AnswerTooLongError(f"more than {self._limit_bytes >> 20} MiB without an end")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def _read(response: httpx2.Response, request: httpx2.Request) -> None:
    call = _current.get(None)
    is_stream = response.headers.get("content-type", "").startswith(_EVENT_STREAM) and not response.is_error
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream, MAX_STREAM_BYTES if is_stream else MAX_BODY_BYTES)
    try:
        if is_stream and call is not None and call.begin is not None:
            gathering = call.begin()
            await gather(response.aiter_bytes(), gathering)
            call.gathered = gathering
        else:
            await response.aread()
    except BrokenStreamError as error:
        raise httpx2.RemoteProtocolError(str(error), request=request) from None
    finally:
        await response.aclose()


def _fault_of_error(error: Exception) -> EndpointFault:
    said = _deepest(error)
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return EndpointFault(kind="unreachable", detail=said or "no connection in time")
    if isinstance(error, httpx2.TimeoutException):
        return EndpointFault(kind="timed_out", detail=said or type(error).__name__)
    return EndpointFault(kind="broken_off", detail=said or type(error).__name__)


def _deepest(error: BaseException) -> str:
    """Return the operating system's error if it is the cause, else the exception's text."""
    said, cause = str(error), error.__cause__ or error.__context__
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {cause.reason or said}"
        if isinstance(cause, OSError) and cause.errno is not None:
            said = os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or said
        cause = cause.__cause__ or cause.__context__
    return said


def _fault_of_status(response: httpx2.Response) -> EndpointFault:
    status = response.status_code
    kind = "server_error" if status in (408, 409) or status >= 500 else "refused"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        kind = "rate_limited"
    if is_spent(status, _error_field(response.text, "code")):
        kind = "refused"
    said = _error_field(response.text, "message")
    detail = response.text if said is None else said
    return EndpointFault(kind=kind, status=status, detail=detail, retry_after_s=retry_after_s(response.headers))


def is_spent(status: int, code: str | None) -> bool:
    """Return True if an endpoint requires payment first, so that waiting does not help."""
    return status == HTTPStatus.PAYMENT_REQUIRED or code == "insufficient_quota"


def _error_field(body: str, name: str) -> str | None:
    try:
        return str(json.loads(body)["error"][name])
    except (ValueError, KeyError, TypeError):
        return None


def retry_after_s(headers: httpx2.Headers) -> float | None:
    """Return the wait that the endpoint requests: `Retry-After-Ms`, else `Retry-After` in seconds or as a date."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return wait_s if math.isfinite(wait_s) else None
    try:
        return parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None


def _shortened(text: str) -> str:
    flat = " ".join(text.encode("utf-8", "replace").decode().split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} …"


DONE: Final = "[DONE]"
"""End of a stream of chat completions."""


MAX_TEXT_CHARS: Final = 1 << 20
"""More than 200,000 tokens of prose."""


class AnswerTooLongError(openai.OpenAIError):
    """An answer that does not end. Not tried again here: the tokens were paid for."""


class BrokenStreamError(Exception):
    """A stream that ended before its answer, or reported a failure; worth another try."""


class NotUnderstoodError(openai.OpenAIError):
    """An event that is not in this dialect."""


class TokenDetails(msgspec.Struct):
    """Parts of a count."""

    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class TokenCounts(msgspec.Struct):
    """An endpoint's counts of one answer, by their names in chat completions."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: TokenDetails | None = None
    completion_tokens_details: TokenDetails | None = None

    @property
    def usage(self) -> Usage:
        """The counts as usage."""
        given, made = (each or TokenDetails() for each in (self.prompt_tokens_details, self.completion_tokens_details))
        return Usage(
            calls=1,
            prompt_tokens=self.prompt_tokens or 0,
            cached_tokens=given.cached_tokens or 0,
            completion_tokens=self.completion_tokens or 0,
            reasoning_tokens=made.reasoning_tokens or 0,
        )

    @property
    def reports_caching(self) -> bool:
        """True if they say how much of the prompt was cached."""
        return self.prompt_tokens_details is not None and self.prompt_tokens_details.cached_tokens is not None


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint's answer as read."""

    text: str
    model: str | None = None
    finish_reason: str = "stop"
    usage: Usage | None = None
    """None: it reported none."""
    reports_caching: bool = False
    """True if its usage reports how much of the prompt was cached."""


class Gathering(Protocol):
    """Assembles the answer of one try."""

    @property
    def said(self) -> Said:
        """The answer so far."""

    @property
    def is_whole(self) -> bool:
        """True once the endpoint has ended the answer."""

    @property
    def is_enough(self) -> bool:
        """True if the rest is not needed."""

    def take(self, event: str) -> None:
        """Take the data of one event.

        Raises:
            AnswerTooLongError: the answer is too long by now.
            BrokenStreamError: the endpoint reports a failure.
            NotUnderstoodError: it is not an event of this dialect.
        """


class Progress:
    """The text of an answer so far, and whether it has been complete for long enough."""

    def __init__(self, ending: Ending | None) -> None:
        self._ending = ending
        self._pieces: list[str] = []
        self._chars = 0
        self._spare_chars = 0
        """Characters read since the answer was complete."""

    @property
    def text(self) -> str:
        """Everything read."""
        return "".join(self._pieces)

    @property
    def is_enough(self) -> bool:
        """True if the answer has been complete for long enough."""
        return self._ending is not None and self._spare_chars > self._ending.patience_chars

    def take(self, piece: str) -> None:
        """Read on. Raises `AnswerTooLongError`."""
        self._pieces.append(piece)
        self._chars += len(piece)
        if self._chars > MAX_TEXT_CHARS:
            raise AnswerTooLongError(f"more than {MAX_TEXT_CHARS >> 20} million characters without an end")
        if self._ending is None or not piece:
            return
        self._spare_chars = self._spare_chars + len(piece) if self._ending.take(piece) else 0


async def gather(body: AsyncIterator[bytes], gathering: Gathering) -> None:
    """Read a stream until its answer has ended, or enough is read. Raises as `Gathering.take` does."""
    async for event in _events(body):
        gathering.take(event)
        if gathering.is_enough or event == DONE:
            break
    if not (gathering.is_whole or gathering.is_enough):
        raise BrokenStreamError("the stream ended in the middle of the answer")


async def _events(body: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the data of each event; comments, names, ids and an unfinished last event are left out."""
    rest, data = b"", list[str]()
    async for chunk in body:
        *lines, rest = (rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
            elif not line and data:
                yield "\n".join(data)
                data = []
