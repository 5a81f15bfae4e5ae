"""Chat completions as OpenAI's API writes them: requests read, answers written, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actors.llm.base import Answer
from actors.llm.served.asked import Asked, Message, pieces_of, said_by


class StreamOptions(msgspec.Struct):
    """How to stream."""

    include_usage: bool = False


class _Question(msgspec.Struct):
    """A request; other fields are allowed and mean nothing here."""

    model: str
    messages: list[Message]
    stream: bool = False
    stream_options: StreamOptions | None = None


def read_asked(body: bytes) -> Asked:
    """Read a request.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    question = msgspec.json.decode(body, type=_Question)
    return Asked(
        model=question.model,
        system=said_by(question.messages, "system", "developer"),
        prompt=said_by(question.messages, "user"),
        stream=question.stream,
        include_usage=question.stream_options is not None and question.stream_options.include_usage,
    )


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
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": piece}, None) for piece in pieces_of(answer.text)]
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
    first, again, *_ = events(msgspec.structs.replace(answer, text=64 * "-"), answer_id, include_usage=False)
    return first, again.replace(64 * b"-", 256 * b"and so on ") * 8


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
