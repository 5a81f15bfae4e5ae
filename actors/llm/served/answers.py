"""Answers by idempotency key: what was generated once is given again, not generated again.

As the IETF's draft of the header `Idempotency-Key` has it: the same key with another question is refused, and a request
whose key is just being answered waits for that answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from actors.llm.base import Answer

LIMIT_BYTES = 64 << 20
"""Of answers that are kept; the one that was not asked for the longest goes first."""
_OVERHEAD_BYTES = 1024
"""What an answer takes besides its text, amply."""


class OtherQuestionError(Exception):
    """The key was used with another question."""


class Given(msgspec.Struct, frozen=True):
    """An answer, and whether it had been generated for an earlier request."""

    answer: Answer
    is_replay: bool


class _Pending:
    def __init__(self, question: bytes) -> None:
        self.question = question
        self.settled = anyio.Event()


class _Kept(msgspec.Struct, frozen=True):
    question: bytes
    answer: Answer

    @property
    def size_bytes(self) -> int:
        return len(self.answer.text) + _OVERHEAD_BYTES


class Answers:
    """What was answered under which key."""

    def __init__(self, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._pending: dict[str, _Pending] = {}

    async def give(self, key: str, question: bytes, generate: Callable[[], Awaitable[Answer]]) -> Given:
        """Return the key's answer, generating it if there is none.

        Args:
            key: as the client sent it; empty: every request is answered by itself.
            question: a digest of what is asked.
            generate: makes an answer. If it fails, or its request goes away, the next request with the key generates.

        Raises:
            OtherQuestionError: the key belongs to another question.
        """
        if not key:
            return Given(await generate(), is_replay=False)
        while (pending := self._pending.get(key)) is not None:
            _check(pending.question, question)
            await pending.settled.wait()
        if (kept := self._kept.get(key)) is not None:
            _check(kept.question, question)
            self._kept.move_to_end(key)
            return Given(kept.answer, is_replay=True)
        pending = self._pending[key] = _Pending(question)
        try:
            answer = await generate()
            self._keep(key, _Kept(question, answer))
        finally:
            del self._pending[key]
            pending.settled.set()
        return Given(answer, is_replay=False)

    def _keep(self, key: str, kept: _Kept) -> None:
        self._kept[key] = kept
        self._size_bytes += kept.size_bytes
        while self._size_bytes > self._limit_bytes:
            _, oldest = self._kept.popitem(last=False)
            self._size_bytes -= oldest.size_bytes


def _check(known: bytes, question: bytes) -> None:
    if known != question:
        raise OtherQuestionError("this Idempotency-Key was used with another question")
