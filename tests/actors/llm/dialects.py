"""How the dialects of OpenAI-compatible endpoints answer: for one contract over all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from actors.llm.chat import ChatModel
from actors.llm.endpoint import EndpointModel
from actors.llm.responses import ResponsesModel
from tests.actors.llm.endpoint import CHAT_USAGE, Reply, completion

NAME = "small-1"
"""What the endpoint says that its model is called."""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One dialect, as endpoints speak it."""

    model: type[EndpointModel]
    path: str

    def whole(self, text: str, *, finish_reason: str = "stop", usage: bool = True) -> Reply:
        """Return an answer in one piece: 120 tokens of prompt, 100 of them cached, 30 of answer, 8 of reasoning."""
        raise NotImplementedError

    def events(self, pieces: Iterable[str], *, is_over: bool = True) -> tuple[bytes, ...]:
        """Return an answer as a stream."""
        raise NotImplementedError

    def trouble(self) -> bytes:
        """Return the event that says that the endpoint failed."""
        raise NotImplementedError


class Chat(Dialect, frozen=True, kw_only=True):
    """Chat completions."""

    model: type[EndpointModel] = ChatModel
    path: str = "/v1/chat/completions"

    def whole(self, text: str, *, finish_reason: str = "stop", usage: bool = True) -> Reply:
        """See `Dialect.whole`."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": finish_reason, "message": message}
        return completion("", choices=[choice], usage=CHAT_USAGE if usage else None)

    def events(self, pieces: Iterable[str], *, is_over: bool = True) -> tuple[bytes, ...]:
        """See `Dialect.events`."""
        chunks: list[dict[str, object]] = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
        chunks += [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
        if is_over:
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            chunks.append({"choices": [], "usage": CHAT_USAGE})
        lines = [json.dumps({"object": "chat.completion.chunk", "model": NAME, **chunk}) for chunk in chunks]
        return tuple(f"data: {line}\n\n".encode() for line in (*lines, *(["[DONE]"] if is_over else [])))

    def trouble(self) -> bytes:
        """See `Dialect.trouble`."""
        return b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'


class Responses(Dialect, frozen=True, kw_only=True):
    """The Responses API."""

    model: type[EndpointModel] = ResponsesModel
    path: str = "/v1/responses"

    def whole(self, text: str, *, finish_reason: str = "stop", usage: bool = True) -> Reply:
        """See `Dialect.whole`."""
        return Reply(body=json.dumps(_response(text, finish_reason=finish_reason, usage=usage)).encode())

    def events(self, pieces: Iterable[str], *, is_over: bool = True) -> tuple[bytes, ...]:
        """See `Dialect.events`."""
        pieces = tuple(pieces)
        events: list[dict[str, object]] = [{"type": "response.created", "response": {"status": "in_progress"}}]
        events += [{"type": "response.reasoning_text.delta", "delta": "Hm."}]
        events += [{"type": "response.output_text.delta", "delta": piece} for piece in pieces]
        if is_over:
            events.append({"type": "response.completed", "response": _response("".join(pieces))})
        return tuple(f"event: {event['type']}\r\ndata: {json.dumps(event)}\r\n\r\n".encode() for event in events)

    def trouble(self) -> bytes:
        """See `Dialect.trouble`."""
        return b'event: error\ndata: {"type": "error", "message": "out of memory"}\n\n'


_RESPONSES_USAGE = {
    "input_tokens": 120,
    "output_tokens": 30,
    "total_tokens": 150,
    "input_tokens_details": {"cached_tokens": 100},
    "output_tokens_details": {"reasoning_tokens": 8},
}


def _response(text: str, *, finish_reason: str = "stop", usage: bool = True) -> dict[str, object]:
    is_cut_off = finish_reason == "length"
    message = {"type": "message", "content": [{"type": "output_text", "text": text, "annotations": []}]}
    return {
        "id": "r1",
        "object": "response",
        "status": "incomplete" if is_cut_off else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if is_cut_off else None,
        "model": NAME,
        "output": [{"type": "reasoning", "summary": []}, message],
        "usage": _RESPONSES_USAGE if usage else None,
    }
