"""The dialects of the served endpoint, as OpenAI writes them: requests read, answers written whole or streamed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from actors.llm.base import Answer

_PIECE_CHARS = 64
"""About 16 tokens per event: endpoints send one to some dozens."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request that are used."""

    model: str
    system: str
    prompt: str
    stream: bool
    include_usage: bool
    """True if a stream ends with its usage."""


class _Part(msgspec.Struct):
    text: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _ChatQuestion(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: _StreamOptions | None = None


class _ResponsesQuestion(msgspec.Struct):
    model: str
    input: str | list[_Message]
    instructions: str | None = None
    stream: bool = False


def _said_by(messages: Iterable[_Message], *roles: str) -> str:
    texts = []
    for message in messages:
        if message.role in roles:
            content = message.content or ""
            texts.append(content if isinstance(content, str) else "".join(part.text for part in content))
    return "\n\n".join(texts)


def _pieces_of(text: str) -> list[str]:
    return [text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS)]


class Wire(ABC):
    """Reads and writes one dialect."""

    @abstractmethod
    def read_asked(self, body: bytes) -> Asked:
        """Read a request. Raises `msgspec.MsgspecError` if it is not one."""

    @abstractmethod
    def completion(self, answer: Answer, answer_id: str) -> bytes:
        """Return the answer as one object."""

    @abstractmethod
    def events(self, answer: Answer, answer_id: str, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the answer as server-sent events."""

    def endless_beginning(self, answer: Answer, answer_id: str, *, stream: bool) -> tuple[bytes, bytes]:
        """Return the beginning of an endless answer, and the part that is then repeated."""
        if not stream:
            whole = self.completion(msgspec.structs.replace(answer, text="and "), answer_id)
            return whole.partition(b'and "')[0], b"and so on " * 1600
        dashes = msgspec.structs.replace(answer, text=64 * "-")
        first, again, *_ = self.events(dashes, answer_id, include_usage=False)
        return first, again.replace(64 * b"-", 256 * b"and so on ") * 8


class ChatWire(Wire):
    """Chat completions."""

    def read_asked(self, body: bytes) -> Asked:
        """See `Wire.read_asked`."""
        question = msgspec.json.decode(body, type=_ChatQuestion)
        return Asked(
            model=question.model,
            system=_said_by(question.messages, "system", "developer"),
            prompt=_said_by(question.messages, "user"),
            stream=question.stream,
            include_usage=question.stream_options is not None and question.stream_options.include_usage,
        )

    def completion(self, answer: Answer, answer_id: str) -> bytes:
        """See `Wire.completion`."""
        message = {"role": "assistant", "content": answer.text}
        choice = {"index": 0, "finish_reason": answer.finish_reason, "message": message}
        head = self._head(answer, answer_id, "chat.completion")
        return msgspec.json.encode({**head, "choices": [choice], "usage": self._usage(answer)})

    def events(self, answer: Answer, answer_id: str, *, include_usage: bool) -> Iterator[bytes]:
        """See `Wire.events`; the last one is `[DONE]`."""
        head = self._head(answer, answer_id, "chat.completion.chunk")
        deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
        deltas += [({"content": piece}, None) for piece in _pieces_of(answer.text)]
        deltas.append(({}, answer.finish_reason))
        for delta, finish_reason in deltas:
            yield self._event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})
        if include_usage:
            yield self._event({**head, "choices": [], "usage": self._usage(answer)})
        yield b"data: [DONE]\n\n"

    def _event(self, fields: dict[str, Any]) -> bytes:
        return b"data: " + msgspec.json.encode(fields) + b"\n\n"

    def _head(self, answer: Answer, answer_id: str, kind: str) -> dict[str, Any]:
        return {"id": answer_id, "object": kind, "created": 0, "model": answer.model}

    def _usage(self, answer: Answer) -> dict[str, Any]:
        usage = answer.usage
        return {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "total_tokens": usage.tokens,
            "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        }


class ResponsesWire(Wire):
    """The Responses API."""

    def read_asked(self, body: bytes) -> Asked:
        """See `Wire.read_asked`."""
        question = msgspec.json.decode(body, type=_ResponsesQuestion)
        if isinstance(question.input, str):
            system, prompt = "", question.input
        else:
            system, prompt = _said_by(question.input, "system", "developer"), _said_by(question.input, "user")
        return Asked(
            model=question.model,
            system="\n\n".join(text for text in (question.instructions, system) if text),
            prompt=prompt,
            stream=question.stream,
            include_usage=True,
        )

    def completion(self, answer: Answer, answer_id: str) -> bytes:
        """See `Wire.completion`."""
        return msgspec.json.encode(self._response(answer, answer_id))

    def events(self, answer: Answer, answer_id: str, *, include_usage: bool) -> Iterator[bytes]:  # noqa: ARG002 - always
        """See `Wire.events`; the last event repeats the whole answer."""
        response = self._response(answer, answer_id)
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        yield self._event("response.created", {"response": begun})
        place = {"item_id": f"msg-{answer_id}", "output_index": 0, "content_index": 0}
        for piece in _pieces_of(answer.text):
            yield self._event("response.output_text.delta", {**place, "delta": piece})
        yield self._event("response.output_text.done", {**place, "text": answer.text})
        yield self._event(f"response.{response['status']}", {"response": response})

    def _event(self, kind: str, fields: dict[str, Any]) -> bytes:
        return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"

    def _response(self, answer: Answer, answer_id: str) -> dict[str, Any]:
        usage, is_cut_off = answer.usage, answer.finish_reason == "length"
        content = {"type": "output_text", "text": answer.text, "annotations": []}
        message = {"type": "message", "id": f"msg-{answer_id}", "role": "assistant", "content": [content]}
        return {
            "id": answer_id,
            "object": "response",
            "created_at": 0,
            "status": "incomplete" if is_cut_off else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut_off else None,
            "model": answer.model,
            "output": [message],
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.tokens,
            },
        }
