"""The served endpoint: chat completions, responses, model list, faults on demand, and counters.

POST /v1/chat/completions (uses `model`, `messages`, `stream`, `stream_options`), POST /v1/responses (`model`,
`instructions`, `input`, `stream`), GET /v1/models (the one model), GET /stats (the ledger's `Report`; needs no key).

A request with a known `Idempotency-Key` gets the stored answer again, also if the first one was lost on its way: it is
paid for. As in the IETF's draft, the same key with another question is refused, and a request with a key in progress
waits for its answer.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final, Literal, TypeAlias, get_args

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from actors.llm.base import CHARS_PER_TOKEN, Answer, Request
from actors.llm.offline.answers import role_of
from actors.llm.offline.model import MODEL_NAME, OfflineModel
from actors.llm.served.wires import Asked, ChatWire, ResponsesWire, Wire
from messages.base import Usage, copied

_BLOCK_CHARS: Final = 16 * CHARS_PER_TOKEN
"""Prefix caches work in blocks of 16 tokens or more (vLLM's default)."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The counts so far."""

    requests: int
    """All requests, with any result."""
    at_once: int
    """Most requests open at a time."""
    paid: int
    """Generated answers, with any result."""
    replayed: int
    """Answers given again to a known `Idempotency-Key`."""
    answered: int
    """Whole answers sent, generated or given again."""
    abandoned: int
    refused: int
    """Bad requests, wrong keys, and requests beyond the limit of concurrent ones."""
    faults: dict[str, int]
    """Injected faults, by kind."""
    mistakes: dict[str, int]
    """Mistakes made on purpose, by kind."""
    prompt_tokens: int
    """Prompt tokens of paid answers; estimated, as are all tokens."""
    cached_tokens: int
    """Part of them that repeats the beginning of an earlier prompt."""
    completion_tokens: int
    ids_paid_twice: tuple[str, ...]
    """Request ids (`X-Client-Request-Id`) with more than one generated answer."""
    prompts_paid_twice: int


class Ledger:
    """Counts."""

    def __init__(self) -> None:
        self.open = 0
        """Requests open now."""
        self.counts: Counter[str] = Counter(requests=0, answered=0, replayed=0, abandoned=0, refused=0)
        self.faults: Counter[str] = Counter()
        self._at_once = 0
        self._usage = Usage()
        self._blocks: set[bytes] = set()
        self._ids: Counter[str] = Counter()
        self._prompts: Counter[bytes] = Counter()

    def opened(self) -> int:
        """Count a request; return its number, from 0."""
        self.open += 1
        self.counts["requests"] += 1
        self._at_once = max(self._at_once, self.open)
        return self.counts["requests"] - 1

    def closed(self) -> None:
        """Count a request as done."""
        self.open -= 1

    def repeated_tokens(self, text: str) -> int:
        """Remember the text, and return the tokens at its beginning that began an earlier text, in whole blocks."""
        digest, repeated, is_known = b"", 0, True
        for start in range(0, len(text) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
            block = text[start : start + _BLOCK_CHARS].encode("utf-8", "replace")
            digest = blake2b(digest + block, digest_size=16).digest()
            is_known = is_known and digest in self._blocks
            repeated += _BLOCK_CHARS if is_known else 0
            self._blocks.add(digest)
        return repeated // CHARS_PER_TOKEN

    def paid(self, request_id: str, prompt: bytes, usage: Usage) -> None:
        """Count a generated answer to the prompt with this digest. An empty id belongs to no call."""
        self._usage = self._usage.plus(usage)
        self._prompts[prompt] += 1
        if request_id:
            self._ids[request_id] += 1

    def report(self, mistakes: Counter[str]) -> Report:
        """Return the counts."""
        return copied(
            Report,
            self._usage,
            **self.counts,
            at_once=self._at_once,
            paid=self._prompts.total(),
            faults=dict(self.faults),
            mistakes=dict(mistakes),
            ids_paid_twice=tuple(sorted(name for name, count in self._ids.items() if count > 1)),
            prompts_paid_twice=sum(count > 1 for count in self._prompts.values()),
        )


LIMIT_BYTES = 64 << 20
"""Size of stored answers; the least recently used is removed first."""
_OVERHEAD_BYTES = 1024
"""Size of an answer besides its text, generously."""


class OtherQuestionError(Exception):
    """The key was used with another question."""


class Given(msgspec.Struct, frozen=True):
    """An answer, and True if it was generated for an earlier request."""

    answer: Answer
    is_replay: bool


class _Known:
    def __init__(self, question: bytes) -> None:
        self.question = question
        self.settled = anyio.Event()
        self.answer: Answer | None = None

    @property
    def size_bytes(self) -> int:
        return 0 if self.answer is None else len(self.answer.text) + _OVERHEAD_BYTES


class Answers:
    """Stored answers by key."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._known: dict[str, _Known] = {}
        """Stored answers, the least recently used first."""

    async def give(self, key: str, question: bytes, generate: Callable[[], Awaitable[Answer]]) -> Given:
        """Return the answer of a key, generating it if there is none; an empty key has no stored answer.

        If `generate` fails or its request goes away, the next request with the key generates. `question` is a digest.

        Raises:
            OtherQuestionError: the key belongs to another question.
        """
        if not key:
            return Given(await generate(), is_replay=False)
        while (known := self._known.get(key)) is not None:
            if known.question != question:
                raise OtherQuestionError("this Idempotency-Key was used with another question")
            if known.answer is not None:
                self._known[key] = self._known.pop(key)
                return Given(known.answer, is_replay=True)
            await known.settled.wait()
        known = self._known[key] = _Known(question)
        try:
            known.answer = await generate()
            return Given(known.answer, is_replay=False)
        finally:
            if known.answer is None:
                del self._known[key]
            known.settled.set()
            self._trim()

    def _trim(self) -> None:
        size_bytes = sum(known.size_bytes for known in self._known.values())
        for key, known in list(self._known.items()):
            if size_bytes <= self._limit_bytes:
                return
            if known.answer is not None:
                size_bytes -= self._known.pop(key).size_bytes


FaultKind: TypeAlias = Literal["rate_limit", "server_error", "hang", "cut", "endless"]
FAULTS: Final[tuple[FaultKind, ...]] = get_args(FaultKind)

_PAUSE_S: Final = 0.001
"""Pause between the chunks of an endless answer, so that other requests are served."""


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of requests that fail, at most 1 together."""

    rate_limit: float = 0.0
    """HTTP 429 with `Retry-After`."""
    server_error: float = 0.0
    """HTTP 500."""
    hang: float = 0.0
    """The request is accepted and never answered."""
    cut: float = 0.0
    """The connection closes in the middle of the answer."""
    endless: float = 0.0
    """The answer goes on until the client disconnects."""

    def pairs(self) -> tuple[tuple[FaultKind, float], ...]:
        """Return kind and rate."""
        return tuple(zip(FAULTS, msgspec.structs.astuple(self), strict=True))

    def drawn(self, number: int, *, seed: int) -> FaultKind | None:
        """Return the fault of the request with this number; the same for the same seed."""
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
    """Announces a body and sends half of it; the server then closes the connection."""

    def __init__(self, whole: bytes, media_type: str) -> None:
        super().__init__(whole, media_type=media_type)

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the half."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body[: len(self.body) // 2])
        await send({"type": "http.response.body", "body": half, "more_body": True})


class Endless(Response):
    """Starts an answer that never ends."""

    def __init__(self, head: bytes, again: bytes, media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._head = head
        self._again = again

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client goes."""
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


_JSON = "application/json"
_EVENTS = "text/event-stream"
_WRONG_KEY = "the API key is missing or wrong"


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """Configured behaviour of the endpoint."""

    faults: FaultRates = FaultRates()
    seed: int = 0
    """Seed of the faults."""
    retry_after_s: float = 1.0
    """`Retry-After` of a 429."""
    api_key: str = ""
    """Bearer token that requests must have; empty: none."""
    concurrency_limit: int | None = None
    """Most concurrent requests; further ones get a 429."""


class Served:
    """One model behind one endpoint."""

    def __init__(self, model: OfflineModel, conduct: Conduct) -> None:
        self._model = model
        self._conduct = conduct
        self._ledger = Ledger()
        self._answers = Answers()
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", _Asking(self, ChatWire()), methods=["POST"]),
                Route("/v1/responses", _Asking(self, ResponsesWire()), methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/stats", self._stats, methods=["GET"]),
            ]
        )

    def report(self) -> Report:
        """Return the counts so far."""
        return self._ledger.report(self._model.mistakes_made)

    async def answer(self, wire: Wire, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, from its first byte to its last."""
        number = self._ledger.opened()
        try:
            response = await self._respond(wire, HttpRequest(scope, receive), number)
            await response(scope, receive, send)
        finally:
            self._ledger.closed()

    async def _respond(self, wire: Wire, http: HttpRequest, number: int) -> Response:
        refusal = self._refusal(http)
        if refusal is None:
            try:
                asked = wire.read_asked(await http.body())
            except msgspec.MsgspecError as error:
                refusal = error_response(400, f"the request cannot be read: {error}")
            else:
                if asked.model == MODEL_NAME:
                    return await self._answered(wire, http, asked, number)
                said = f"the model {asked.model!r} does not exist; here is {MODEL_NAME!r}"
                refusal = error_response(404, said, code="model_not_found")
        self._ledger.counts["refused"] += 1
        return refusal

    def _refusal(self, http: HttpRequest) -> Response | None:
        limit = self._conduct.concurrency_limit
        if not self._is_allowed(http):
            return error_response(401, _WRONG_KEY, code="invalid_api_key")
        if limit is not None and self._ledger.open > limit:
            said = f"more than {limit} requests at once"
            return error_response(429, said, code="rate_limit_exceeded", retry_after_s=self._conduct.retry_after_s)
        return None

    async def _answered(self, wire: Wire, http: HttpRequest, asked: Asked, number: int) -> Response:
        fault = self._conduct.faults.drawn(number, seed=self._conduct.seed)
        if fault is not None:
            self._ledger.faults[fault] += 1
        if fault == "rate_limit":
            retry_after_s = self._conduct.retry_after_s
            return error_response(429, "too many requests", code="rate_limit_exceeded", retry_after_s=retry_after_s)
        if fault == "server_error":
            return error_response(500, "the server had an error")
        try:
            answer = await self._answer(http, asked)
        except OtherQuestionError as error:
            self._ledger.counts["refused"] += 1
            return error_response(422, str(error), code="idempotency_key_reused")
        answer_id = f"chatcmpl-{number}"
        if fault is not None:
            return _spoiled(wire, fault, asked, answer, answer_id)
        if await http.is_disconnected():
            self._ledger.counts["abandoned"] += 1
        else:
            self._ledger.counts["answered"] += 1
        return _whole(wire, asked, answer, answer_id)

    async def _answer(self, http: HttpRequest, asked: Asked) -> Answer:
        request_id = http.headers.get("x-client-request-id", "")
        system, prompt = asked.system, asked.prompt
        request = Request(request_id=request_id, role=role_of(prompt), system=system, parts=(prompt,))
        question = f"{system}\n\n{prompt}"
        digest = blake2b(question.encode("utf-8", "replace"), digest_size=16).digest()

        async def generate() -> Answer:
            repeated = self._ledger.repeated_tokens(question)
            answer = await self._model.complete(request)
            usage = msgspec.structs.replace(answer.usage, cached_tokens=min(repeated, answer.usage.prompt_tokens))
            self._ledger.paid(request_id, digest, usage)
            return msgspec.structs.replace(answer, usage=usage)

        given = await self._answers.give(http.headers.get("idempotency-key", ""), digest, generate)
        self._ledger.counts["replayed"] += given.is_replay
        return given.answer

    async def _stats(self, _http: HttpRequest) -> Response:
        return _json(self.report())

    async def _models(self, http: HttpRequest) -> Response:
        if not self._is_allowed(http):
            return error_response(401, _WRONG_KEY, code="invalid_api_key")
        entry = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "ksearch"}
        return _json({"object": "list", "data": [entry]})

    def _is_allowed(self, http: HttpRequest) -> bool:
        given = http.headers.get("authorization", "").removeprefix("Bearer ")
        return not self._conduct.api_key or hmac.compare_digest(given.encode(), self._conduct.api_key.encode())


class _Asking:
    """A route for questions: an ASGI application, since a request is open until its last byte is sent."""

    def __init__(self, served: Served, wire: Wire) -> None:
        self._served = served
        self._wire = wire

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._served.answer(self._wire, scope, receive, send)


def _whole(wire: Wire, asked: Asked, answer: Answer, answer_id: str) -> Response:
    if not asked.stream:
        return Response(wire.completion(answer, answer_id), media_type=_JSON)
    return StreamingResponse(wire.events(answer, answer_id, include_usage=asked.include_usage), media_type=_EVENTS)


def _spoiled(wire: Wire, fault: FaultKind, asked: Asked, answer: Answer, answer_id: str) -> Response:
    if fault == "hang":
        return Hang()
    media_type = _EVENTS if asked.stream else _JSON
    if fault == "endless":
        head, again = wire.endless_beginning(answer, answer_id, stream=asked.stream)
        return Endless(head, again, media_type)
    if asked.stream:
        return Cut(b"".join(wire.events(answer, answer_id, include_usage=asked.include_usage)), media_type)
    return Cut(wire.completion(answer, answer_id), media_type)


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=_JSON)
