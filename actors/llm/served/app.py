"""The endpoint: chat completions (also streamed), the list of models, and what was counted.

POST /v1/chat/completions     as OpenAI's; of its fields `model`, `messages`, `stream`, `stream_options` are heeded
GET  /v1/models               the one model
GET  /stats                   the ledger's `Report`; needs no key
"""

from __future__ import annotations

import hmac

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from actors.llm.base import Answer, Request
from actors.llm.offline.model import MODEL_NAME, OfflineModel
from actors.llm.offline.roles import role_of
from actors.llm.served.faults import Cut, Endless, FaultKind, FaultRates, Hang, error_response
from actors.llm.served.ledger import Ledger, Report
from actors.llm.served.wire import Asked, completion, endless_beginning, events, read_asked

_JSON = "application/json"
_EVENTS = "text/event-stream"


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
        self.app = Starlette(
            routes=[
                Route("/v1/chat/completions", _Chat(self), methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/stats", self._stats, methods=["GET"]),
            ]
        )

    def report(self) -> Report:
        """Return what was counted so far."""
        return self._ledger.report(self._model.mistakes_made)

    async def chat(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, from its first byte to its last."""
        number = self._ledger.opened()
        try:
            response = await self._respond(HttpRequest(scope, receive), number)
            await response(scope, receive, send)
        finally:
            self._ledger.closed()

    async def _respond(self, http: HttpRequest, number: int) -> Response:
        refusal = self._refusal(http)
        if refusal is None:
            try:
                asked = read_asked(await http.body())
            except msgspec.MsgspecError as error:
                refusal = error_response(400, f"the request cannot be read: {error}")
            else:
                if asked.model == MODEL_NAME:
                    return await self._answered(http, asked, number)
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

    async def _answered(self, http: HttpRequest, asked: Asked, number: int) -> Response:
        fault = self._conduct.faults.drawn(number, seed=self._conduct.seed)
        if fault is not None:
            self._ledger.faults[fault] += 1
        if fault == "rate_limit":
            retry_after_s = self._conduct.retry_after_s
            return error_response(429, "too many requests", code="rate_limit_exceeded", retry_after_s=retry_after_s)
        if fault == "server_error":
            return error_response(500, "the server had an error")
        if fault == "hang":
            return Hang()
        prompt = asked.texts("user")
        request_id = http.headers.get("x-client-request-id", "")
        system = asked.texts("system", "developer")
        repeated = self._ledger.repeated_tokens(f"{system}\n\n{prompt}")
        request = Request(request_id=request_id, role=role_of(prompt), system=system, parts=(prompt,))
        answer = await self._model.complete(request)
        usage = msgspec.structs.replace(answer.usage, cached_tokens=min(repeated, answer.usage.prompt_tokens))
        answer = msgspec.structs.replace(answer, usage=usage)
        answer_id = f"chatcmpl-{number}"
        if fault is not None:
            return _spoiled(fault, asked, answer, answer_id)
        if await http.is_disconnected():
            self._ledger.abandoned += 1
        else:
            self._ledger.answered(request_id, f"{system}\n\n{prompt}", usage)
        return _whole(asked, answer, answer_id)

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


class _Chat:
    """The route of chat completions: an ASGI application, since a request is open until its last byte is sent."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._served.chat(scope, receive, send)


def _whole(asked: Asked, answer: Answer, answer_id: str) -> Response:
    if not asked.stream:
        return Response(completion(answer, answer_id), media_type=_JSON)
    return StreamingResponse(iter(_events(asked, answer, answer_id)), media_type=_EVENTS)


def _spoiled(fault: FaultKind, asked: Asked, answer: Answer, answer_id: str) -> Response:
    """Return an answer that breaks off, or does not end."""
    media_type = _EVENTS if asked.stream else _JSON
    if fault == "endless":
        head, again = endless_beginning(answer, answer_id, stream=asked.stream)
        return Endless(head, again, media_type)
    if asked.stream:
        return Cut(b"".join(_events(asked, answer, answer_id)), media_type)
    return Cut(completion(answer, answer_id), media_type)


def _events(asked: Asked, answer: Answer, answer_id: str) -> list[bytes]:
    include_usage = asked.stream_options is not None and asked.stream_options.include_usage
    return list(events(answer, answer_id, include_usage=include_usage))


def _wrong_key() -> Response:
    return error_response(401, "the API key is missing or wrong", code="invalid_api_key")


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type=_JSON)
