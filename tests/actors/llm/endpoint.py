"""An endpoint on a local port: real HTTP, answers as the test says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the endpoint does with one request."""

    status: int = 200
    body: bytes = b""
    headers: tuple[str, ...] = ()
    hangs: bool = False
    waits_for: anyio.Event | None = None
    drops: bool = False
    endless: bool = False
    events: tuple[bytes, ...] = ()
    """The answer is a stream of these."""
    goes_on_with: bytes = b""
    """After the events, until the client goes."""
    cut: bool = False
    """The stream is not ended, the connection is."""


Replies: TypeAlias = Callable[[int], Reply]
"""From the number of the request, counted from 0."""


class Endpoint:
    """Answers requests and remembers them."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.requests: list[dict[str, object]] = []
        self.paths: list[str] = []
        self.heads: list[str] = []
        self.url = ""
        self.left_early = anyio.Event()
        """A client went before a stream was over."""

    async def serve(self, stream: SocketStream) -> None:
        """Answer the requests of one connection."""
        async with stream:
            buffer = b""
            while True:
                try:
                    while b"\r\n\r\n" not in buffer:
                        buffer += await stream.receive()
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
                    while len(buffer) < length:
                        buffer += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                body, buffer = buffer[:length], buffer[length:]
                self.heads.append(head.decode("latin-1"))
                self.paths.append(head.split(b" ")[1].decode())
                if not await self._reply(stream, json.loads(body or b"{}")):
                    return

    async def _reply(self, stream: SocketStream, request: dict[str, object]) -> bool:
        self.requests.append(request)
        reply = self._replies(len(self.requests) - 1)
        if reply.hangs:
            await anyio.sleep_forever()
        if reply.waits_for is not None:
            await reply.waits_for.wait()
        if reply.drops:
            return False
        if reply.endless:
            await stream.send(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n\r\n")
            with suppress(anyio.BrokenResourceError):
                while True:
                    await stream.send(b"and so on " * 6000)
            return False
        if reply.events:
            return await self._stream(stream, reply)
        lines = (
            f"HTTP/1.1 {reply.status} X",
            "Content-Type: application/json",
            f"Content-Length: {len(reply.body)}",
            *reply.headers,
        )
        await stream.send("\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body)
        return True

    async def _stream(self, stream: SocketStream, reply: Reply) -> bool:
        head = "HTTP/1.1 200 X\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
        await stream.send(head.encode())
        try:
            for event in reply.events:
                await stream.send(_chunk(event))
            while reply.goes_on_with:
                await stream.send(_chunk(reply.goes_on_with))
                await anyio.sleep(0.001)  # others want to be served too
        except anyio.BrokenResourceError:
            self.left_early.set()
            return False
        if not reply.cut:
            await stream.send(_chunk(b""))
        return not reply.cut


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@asynccontextmanager
async def endpoint(replies: Replies) -> AsyncIterator[Endpoint]:
    """Run an endpoint on a free port of this host."""
    server = Endpoint(replies)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        port = listener.listeners[0].extra(SocketAttribute.local_port)  # noqa: S610 - a socket, not a query
        server.url = f"http://127.0.0.1:{port}/v1"
        yield server
        tasks.cancel_scope.cancel()


CHAT_USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 8},
}


def completion(text: str, **changes: object) -> Reply:
    """Return a good answer in the dialect `chat`."""
    body: dict[str, object] = {
        "id": "c1",
        "object": "chat.completion",
        "created": 0,
        "model": "small-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": CHAT_USAGE,
    }
    return Reply(body=json.dumps(body | changes).encode())


def failure(status: int, message: str, *headers: str) -> Reply:
    """Return an error in the format of OpenAI's API."""
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=headers)
