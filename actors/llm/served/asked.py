"""A question as the served model takes it, whatever dialect it came in."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_PIECE_CHARS = 64
"""About 16 tokens per event: endpoints send one to some dozens."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is heeded of a request."""

    model: str
    system: str
    prompt: str
    stream: bool
    include_usage: bool
    """A stream ends with what it cost."""


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


def said_by(messages: Iterable[Message], *roles: str) -> str:
    """Return the messages of these roles, joined by blank lines."""
    return "\n\n".join(message.text for message in messages if message.role in roles)


def pieces_of(text: str) -> list[str]:
    """Cut an answer into what one event brings."""
    return [text[start : start + _PIECE_CHARS] for start in range(0, len(text), _PIECE_CHARS)]
