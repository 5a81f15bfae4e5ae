"""The endpoint: chat completions and responses (also streamed), the list of models, and what was counted.

POST /v1/chat/completions     as OpenAI's; of its fields `model`, `messages`, `stream`, `stream_options` are heeded
POST /v1/responses            as OpenAI's; `model`, `instructions`, `input`, `stream`
GET  /v1/models               the one model
GET  /stats                   the ledger's `Report`; needs no key

A request with an `Idempotency-Key` that was seen before gets the stored answer again, also where the first one failed
on its way: the answer was generated, and is paid for.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import blake2b
from typing import Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from actors.llm.base import Answer, Request
from actors.llm.offline.model import MODEL_NAME, OfflineModel
from actors.llm.offline.roles import role_of
from actors.llm.served import chat_wire, responses_wire
from actors.llm.served.answers import Answers, OtherQuestionError
from actors.llm.served.asked import Asked
from actors.llm.served.faults import Cut, Endless, FaultKind, FaultRates, Hang, error_response
from actors.llm.served.ledger import Ledger, Report

_JSON = "application/json"
_EVENTS = "text/event-stream"


class Wire(Protocol):
    """How one dialect is read and written: a module."""

    def read_asked(self, body: bytes) -> Asked:
        """Read a request.

        Raises:
            msgspec.MsgspecError: it is none.
        """

    def completion(self, answer: Answer, answer_id: str) -> bytes:
        """Return the answer as one object."""

    def events(self, answer: Answer, answer_id: str, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the answer as server-sent events."""

    def endless_beginning(self, answer: Answer, answer_id: str, *, stream: bool) -> tuple[bytes, bytes]:
        """Return how an answer without an end begins, and what then comes again and again."""


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """How the endpoint behaves."""

    faults: FaultRates = FaultRates()
    seed: int = 0
    """Of the faults' draws."""
    retry_after_s: float = 1.0
    """What a 429 asks for."""
    api_key: str = ""
    """Demanded as bearer token; empty: anybody may ask."""
    concurrency_limit: int | None = None
    """Requests above this many at once are answered with 429."""


class Served:
    """One model behind one endpoint."""

    def __init__(self, model: OfflineModel, conduct: Conduct) -> None:
        self._model = model
        self._conduct = conduct
        self._ledger = Ledger()
        self._answers = Answers()
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", _Asking(self, chat_wire), methods=["POST"]),
                Route("/v1/responses", _Asking(self, responses_wire), methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/stats", self._stats, methods=["GET"]),
            ]
        )

    def report(self) -> Report:
        """Return what was counted so far."""
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
        self._ledger.refused += 1
        return refusal

    def _refusal(self, http: HttpRequest) -> Response | None:
        """Say why a request is not even read; None if it is."""
        limit = self._conduct.concurrency_limit
        if not self._is_allowed(http):
            return _wrong_key()
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
            self._ledger.refused += 1
            return error_response(422, str(error), code="idempotency_key_reused")
        answer_id = f"chatcmpl-{number}"
        if fault is not None:
            return _spoiled(wire, fault, asked, answer, answer_id)
        if await http.is_disconnected():
            self._ledger.abandoned += 1
        else:
            self._ledger.answered += 1
        return _whole(wire, asked, answer, answer_id)

    async def _answer(self, http: HttpRequest, asked: Asked) -> Answer:
        """Return the answer, generated for this request or for an earlier one with the same key.

        Raises:
            OtherQuestionError: the key belongs to another question.
        """
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
        self._ledger.replayed += given.is_replay
        return given.answer

    async def _stats(self, _http: HttpRequest) -> Response:
        return _json(self.report())

    async def _models(self, http: HttpRequest) -> Response:
        if not self._is_allowed(http):
            return _wrong_key()
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
    """Return an answer that does not arrive, breaks off, or does not end."""
    if fault == "hang":
        return Hang()
    media_type = _EVENTS if asked.stream else _JSON
    if fault == "endless":
        head, again = wire.endless_beginning(answer, answer_id, stream=asked.stream)
        return Endless(head, again, media_type)
    if asked.stream:
        return Cut(b"".join(wire.events(answer, answer_id, include_usage=asked.include_usage)), media_type)
    return Cut(wire.completion(answer, answer_id), media_type)


def _wrong_key() -> Response:
    return error_response(401, "the API key is missing or wrong", code="invalid_api_key")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=_JSON)
