"""JetStream over a link: questions that are asked until they are answered, and what its refusals mean.

A question is asked again, with the same headers, until it is answered or the patience is over: whoever asks sees to it
that being carried out twice does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import msgspec

from actors.bus.base import UnknownQueueError
from actors.bus.nats.client import Reply
from actors.bus.nats.link import Link, NoAnswerError, Patience, PatienceError
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

_encode = msgspec.json.Encoder().encode


class Answer(Protocol):
    """Any of the answers in `wire`."""

    @property
    def error(self) -> Fault | None:
        """Why not; None if it is what was asked for."""


A = TypeVar("A", bound=Answer)


class Connection(Link):
    """A link that knows JetStream."""

    async def insist(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None, *, what: str
    ) -> tuple[Reply, bool]:
        """Ask until there is an answer. Returns it, and whether an earlier try may have been carried out.

        Raises:
            BusError: there was none for too long, it is not allowed, or the bus is closed.
        """
        patience = Patience(self, what)
        is_retry = False
        while True:
            try:
                reply, was_asked_again = await self.ask_often(subject, payload, headers)
                return reply, is_retry or was_asked_again
            except NoAnswerError as error:
                is_retry = True
                await patience.take(str(error))

    async def call(self, request: str, body: object, kind: type[A], *, what: str) -> A:
        """Ask JetStream's interface.

        Raises:
            RefusedError: it says no.
            BusError: see `insist`.
        """
        patience = Patience(self, what)
        payload = b"" if body is None else _encode(body)
        was_retry = False
        while True:
            reply, is_retry = await self.insist(f"$JS.API.{request}", payload, what=what)
            was_retry |= is_retry
            if reply.status:
                await patience.take(f"JetStream is not there ({reply.status} {reply.description})")
                continue
            answer = decoded(reply.payload, kind, what)
            if answer.error is None:
                return answer
            await self._refuse(answer.error, patience, what, is_retry=was_retry)

    async def store(self, subject: str, payload: bytes, headers: dict[str, str], *, stream: str, what: str) -> Stored:
        """Publish into a stream, until it says that the message is kept.

        Raises:
            UnknownQueueError: there is no such stream.
            RefusedError: it says no.
            BusError: see `insist`; or the message is too large.
        """
        size = message_bytes(payload, headers)
        if size > self.max_payload:
            raise BusError(f"{what}: {size} bytes with headers; the server takes {self.max_payload}")
        try:
            return await self._store(subject, payload, headers, stream=stream, what=what)
        except PatienceError as error:
            # Seen with 2.15.1: a disk that was full once silences the streams that were written to meanwhile.
            hint = "a server that ran out of disk space stays silent until it is started again: see its log"
            raise PatienceError(f"{error}; {hint}") from error

    async def _store(self, subject: str, payload: bytes, headers: dict[str, str], *, stream: str, what: str) -> Stored:
        patience = Patience(self, what)
        was_retry = False
        while True:
            reply, is_retry = await self.insist(subject, payload, headers, what=what)
            was_retry |= is_retry
            if reply.status:
                await self.check_stream(stream, what)
                await patience.take("its stream has no leader")
                continue
            answer = decoded(reply.payload, Stored, what)
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
        """Make a stream.

        A stream that is deleted while the folder of an earlier one of its name is still being removed leaves its
        messages to the next of that name (seen with nats-server 2.15.1): what is older than the stream is thrown away.

        Raises:
            RefusedError: see `call`.
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
        """Raise what a refusal means; return if it may pass by itself."""
        text = f"{what}: the server says {fault.description!r} ({fault.err_code})"
        if fault.err_code in NO_ROOM:
            await patience.take(f"the server has no room: {fault.description!r} ({fault.err_code})")
        elif fault.err_code in TRANSIENT or (fault.code == 503 and fault.err_code == 0):
            await patience.take(f"the server says {fault.description!r} ({fault.err_code})")
        else:
            raise RefusedError(text, fault, is_retry=is_retry)


def decoded(payload: bytes, kind: type[A], what: str) -> A:
    """Parse an answer.

    Raises:
        BusError: it is none.
    """
    try:
        return msgspec.json.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BusError(f"{what}: an answer that cannot be read: {error}") from error


def message_bytes(payload: bytes, headers: Mapping[str, str]) -> int:
    """Return what the server counts as a message's payload: its headers too."""
    values = sum(len(value) if value.isascii() else len(value.encode()) for value in headers.values())
    return len(payload) + 12 + values + sum(len(name) + 4 for name in headers)
