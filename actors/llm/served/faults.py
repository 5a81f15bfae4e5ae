"""What goes wrong between a client and an endpoint, on purpose: as ASGI answers that fail."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, Literal, TypeAlias, get_args

import anyio
import msgspec
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

FaultKind: TypeAlias = Literal["rate_limit", "server_error", "hang", "cut", "endless"]
FAULTS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

_PAUSE_S: Final = 0.001
"""Between the chunks of an answer without an end: others want to be served too."""


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of requests that fail, 0 to 1 each and at most 1 together."""

    rate_limit: float = 0.0
    """HTTP 429 with `Retry-After`."""
    server_error: float = 0.0
    """HTTP 500."""
    hang: float = 0.0
    """Taken, and never answered."""
    cut: float = 0.0
    """The connection closes in the middle of the answer."""
    endless: float = 0.0
    """The answer goes on until the client has had enough."""

    def pairs(self) -> tuple[tuple[FaultKind, float], ...]:
        """Return kind and rate."""
        rates = (self.rate_limit, self.server_error, self.hang, self.cut, self.endless)
        return tuple(zip(FAULTS, rates, strict=True))

    def drawn(self, number: int, *, seed: int) -> FaultKind | None:
        """Return how the request of this number fails; the same for the same seed."""
        digest = blake2b(f"{seed}|{number}".encode(), digest_size=8).digest()
        chance = int.from_bytes(digest) / 2**64
        for kind, rate in self.pairs():
            if chance < rate:
                return kind
            chance -= rate
        return None


def error_response(
    status: int, message: str, *, code: str | None = None, retry_after_s: float | None = None
) -> Response:
    """Return an error in OpenAI's format."""
    headers = {} if retry_after_s is None else {"Retry-After": f"{retry_after_s:g}"}
    kind = "server_error" if status >= 500 else "invalid_request_error"
    body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)


class Hang(Response):
    """Never answers; ends when the client goes."""

    async def __call__(self, _scope: Scope, receive: Receive, _send: Send) -> None:
        """Wait for the client to go."""
        await _gone(receive)


class Cut(Response):
    """Promises a body and sends half of it; the server then closes the connection."""

    def __init__(self, whole: bytes, media_type: str) -> None:
        super().__init__(whole, media_type=media_type)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the half."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body[: len(self.body) // 2])
        await send({"type": "http.response.body", "body": half, "more_body": True})


class Endless(Response):
    """Begins an answer that does not end."""

    def __init__(self, head: bytes, again: bytes, media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._head = head
        self._again = again

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Talk until the client goes."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._head, "more_body": True})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._talk, send)
            await _gone(receive)
            tasks.cancel_scope.cancel()

    async def _talk(self, send: Send) -> None:
        while True:
            await send({"type": "http.response.body", "body": self._again, "more_body": True})
            await anyio.sleep(_PAUSE_S)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
