"""Responses as OpenAI's API writes them: requests read, answers written, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actors.llm.base import Answer
from actors.llm.served.asked import Asked, Message, pieces_of, said_by


class _Question(msgspec.Struct):
    """A request; other fields are allowed and mean nothing here."""

    model: str
    input: str | list[Message]
    instructions: str | None = None
    stream: bool = False


def read_asked(body: bytes) -> Asked:
    """Read a request.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    question = msgspec.json.decode(body, type=_Question)
    if isinstance(question.input, str):
        system, prompt = "", question.input
    else:
        system, prompt = said_by(question.input, "system", "developer"), said_by(question.input, "user")
    return Asked(
        model=question.model,
        system="\n\n".join(text for text in (question.instructions, system) if text),
        prompt=prompt,
        stream=question.stream,
        include_usage=True,
    )


def completion(answer: Answer, answer_id: str) -> bytes:
    """Return the answer as one object."""
    return msgspec.json.encode(_response(answer, answer_id))


def events(answer: Answer, answer_id: str, *, include_usage: bool) -> Iterator[bytes]:  # noqa: ARG001 - always told
    """Yield the answer as server-sent events; the last one brings the whole once more."""
    begun = {**_response(answer, answer_id), "status": "in_progress", "output": [], "usage": None}
    yield _event("response.created", {"response": begun})
    place = {"item_id": f"msg-{answer_id}", "output_index": 0, "content_index": 0}
    for piece in pieces_of(answer.text):
        yield _event("response.output_text.delta", {**place, "delta": piece})
    yield _event("response.output_text.done", {**place, "text": answer.text})
    response = _response(answer, answer_id)
    yield _event(f"response.{response['status']}", {"response": response})


def endless_beginning(answer: Answer, answer_id: str, *, stream: bool) -> tuple[bytes, bytes]:
    """Return how an answer without an end begins, and what then comes again and again."""
    if not stream:
        head, _, _ = completion(msgspec.structs.replace(answer, text="and "), answer_id).partition(b'and "')
        return head, b"and so on " * 1600
    first, again, *_ = events(msgspec.structs.replace(answer, text=64 * "-"), answer_id, include_usage=False)
    return first, again.replace(64 * b"-", 256 * b"and so on ") * 8


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


def _response(answer: Answer, answer_id: str) -> dict[str, Any]:
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
