"""Chat completions as OpenAI's API writes them: requests read, answers written, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actors.llm.base import Answer

_PIECE_CHARS = 64
"""About 16 tokens per event: endpoints send one to some dozens."""


class Part(msgspec.Struct):
    """A piece of a message; only text is heeded."""

    text: str = ""


class Message(msgspec.Struct):
    """One message of a conversation."""

    role: str
    content: str | list[Part] | None = None

    @property
    def text(self) -> str:
        """The content as one text."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(msgspec.Struct):
    """How to stream."""

    include_usage: bool = False


class Asked(msgspec.Struct):
    """A request; other fields are allowed and mean nothing here."""

    model: str
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions | None = None

    def texts(self, *roles: str) -> str:
        """Return the messages of these roles, joined by blank lines."""
        return "\n\n".join(message.text for message in self.messages if message.role in roles)


def read_asked(body: bytes) -> Asked:
    """Read a request.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    return msgspec.json.decode(body, type=Asked)


def completion(answer: Answer, answer_id: str) -> bytes:
    """Return the answer as one object."""
    choice = {
        "index": 0,
        "finish_reason": answer.finish_reason,
        "message": {"role": "assistant", "content": answer.text},
    }
    return msgspec.json.encode(
        {**_head(answer, answer_id, "chat.completion"), "choices": [choice], "usage": _usage(answer)}
    )


def events(answer: Answer, answer_id: str, *, include_usage: bool) -> Iterator[bytes]:
    """Yield the answer as server-sent events, the last of which is `[DONE]`."""
    head = _head(answer, answer_id, "chat.completion.chunk")
    pieces = [answer.text[start : start + _PIECE_CHARS] for start in range(0, len(answer.text), _PIECE_CHARS)]
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces]
    deltas.append(({}, answer.finish_reason))
    for delta, finish_reason in deltas:
        yield _event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})
    if include_usage:
        yield _event({**head, "choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def endless_beginning(answer: Answer, answer_id: str, *, stream: bool) -> tuple[bytes, bytes]:
    """Return how an answer without an end begins, and what then comes again and again."""
    if not stream:
        head, _, _ = completion(msgspec.structs.replace(answer, text="and "), answer_id).partition(b'and "')
        return head, b"and so on " * 1600
    first, again, *_ = events(msgspec.structs.replace(answer, text="and so on "), answer_id, include_usage=False)
    return first, again * 100


def _event(fields: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def _head(answer: Answer, answer_id: str, kind: str) -> dict[str, Any]:
    return {"id": answer_id, "object": kind, "created": 0, "model": answer.model}


def _usage(answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
