"""Answers as server-sent events, read until they are complete and no further.

An answer is whole once what its reader would take from it is there. Endpoints get some more characters to end by
themselves (`patience_chars`), since only who ends by itself reports what it cost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, Protocol

import msgspec
import openai

from actors.llm.base import Ending
from messages.base import Usage

DONE: Final = "[DONE]"
"""What ends a stream of chat completions."""


MAX_TEXT_CHARS: Final = 1 << 20
"""What an answer may say: more than 200,000 tokens of prose."""


class AnswerTooLongError(openai.OpenAIError):
    """An answer went on and on. Not tried again here: the tokens were paid for."""


class BrokenStreamError(Exception):
    """A stream that ended before its answer did, or said that it failed; worth another try."""


class NotUnderstoodError(openai.OpenAIError):
    """An event that is none of this dialect's."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an endpoint's answer."""

    text: str
    model: str | None = None
    finish_reason: str = "stop"
    usage: Usage | None = None
    """None: it reported none."""
    reports_caching: bool = False
    """Its usage tells how much of the prompt was cached."""


class Gathering(Protocol):
    """Puts one try's answer together."""

    @property
    def said(self) -> Said:
        """The answer as far as it was read."""

    @property
    def is_whole(self) -> bool:
        """Say whether the endpoint said that the answer is over."""

    @property
    def is_enough(self) -> bool:
        """Say whether the rest is not needed."""

    def take(self, event: str) -> None:
        """Take the data of one event.

        Raises:
            AnswerTooLongError: the answer is too long by now.
            BrokenStreamError: the endpoint says that it failed.
            NotUnderstoodError: it is no event of this dialect.
        """


class Progress:
    """How far an answer's text has come, and whether it was whole for so long that the rest may be left."""

    def __init__(self, ending: Ending | None) -> None:
        self._ending = ending
        self._pieces: list[str] = []
        self._chars = 0
        self._spare_chars = 0
        """Read since the answer was whole."""

    @property
    def text(self) -> str:
        """All that was read."""
        return "".join(self._pieces)

    @property
    def is_enough(self) -> bool:
        """Say whether the answer has been whole for long enough."""
        return self._ending is not None and self._spare_chars > self._ending.patience_chars

    def take(self, piece: str) -> None:
        """Read on.

        Raises:
            AnswerTooLongError: it is too much by now.
        """
        self._pieces.append(piece)
        self._chars += len(piece)
        if self._chars > MAX_TEXT_CHARS:
            raise AnswerTooLongError(f"more than {MAX_TEXT_CHARS >> 20} million characters without an end")
        if self._ending is None or not piece:
            return
        self._spare_chars = self._spare_chars + len(piece) if self._ending.take(piece) else 0


async def gather(body: AsyncIterator[bytes], gathering: Gathering) -> None:
    """Read a stream until its answer is over, or enough.

    Raises:
        AnswerTooLongError: the answer is too long.
        BrokenStreamError: it ended before, or the endpoint said that it failed.
        NotUnderstoodError: it holds something else.
    """
    async for event in _events(body):
        gathering.take(event)
        if gathering.is_enough or event == DONE:
            break
    if not (gathering.is_whole or gathering.is_enough):
        raise BrokenStreamError("the stream ended in the middle of the answer")


async def _events(body: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Yield the data of each event; comments, names and ids are left out. An unfinished event at the end is none."""
    rest, data = b"", list[str]()
    async for chunk in body:
        *lines, rest = (rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" ").decode("utf-8", "replace"))
            elif not line and data:
                yield "\n".join(data)
                data = []
