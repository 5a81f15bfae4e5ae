"""What a served model was asked, counted: what a run costs and repeats, and whether anything was paid for twice."""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import Final

import msgspec

from actors.llm.tokens import CHARS_PER_TOKEN
from messages.base import Usage

_BLOCK_CHARS: Final = 16 * CHARS_PER_TOKEN
"""Prefix caches work in blocks of 16 tokens or more (vLLM's default)."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The counts so far."""

    requests: int
    """All that were asked, whatever became of them."""
    at_once: int
    """Most requests that were open at a time."""
    paid: int
    """Answers that were generated, whatever became of them."""
    replayed: int
    """Answers that were given again to a known `Idempotency-Key`, instead of being generated again."""
    answered: int
    """Whole answers that were sent, generated or given again."""
    abandoned: int
    """Answers for clients that had gone."""
    refused: int
    """Bad requests, wrong keys, more requests at once than allowed."""
    faults: dict[str, int]
    """Injected, by kind."""
    mistakes: dict[str, int]
    """Made on purpose, by kind."""
    prompt_tokens: int
    """Of paid answers; estimated, as are all tokens."""
    cached_tokens: int
    """Part of them that repeats the beginning of an earlier request."""
    completion_tokens: int
    ids_paid_twice: tuple[str, ...]
    """Request ids (`X-Client-Request-Id`) for which more than one answer was generated."""
    prompts_paid_twice: int
    """Prompts for which more than one was."""


class Ledger:
    """Counts."""

    def __init__(self) -> None:
        self.open = 0
        """Requests open now."""
        self.requests = 0
        self.answered = 0
        self.replayed = 0
        self.abandoned = 0
        self.refused = 0
        self.faults: Counter[str] = Counter()
        self._at_once = 0
        self._usage = Usage()
        self._blocks: set[bytes] = set()
        self._ids: Counter[str] = Counter()
        self._prompts: Counter[bytes] = Counter()

    def opened(self) -> int:
        """Count a request that came; return its number, from 0."""
        self.open += 1
        self.requests += 1
        self._at_once = max(self._at_once, self.open)
        return self.requests - 1

    def closed(self) -> None:
        """Count a request that is done with, in whatever way."""
        self.open -= 1

    def repeated_tokens(self, text: str) -> int:
        """Return how many tokens at the text's beginning began an earlier text too, in whole blocks; remember it."""
        digest, repeated, is_known = b"", 0, True
        for start in range(0, len(text) - _BLOCK_CHARS + 1, _BLOCK_CHARS):
            block = text[start : start + _BLOCK_CHARS].encode("utf-8", "replace")
            digest = blake2b(digest + block, digest_size=16).digest()
            is_known = is_known and digest in self._blocks
            repeated += _BLOCK_CHARS if is_known else 0
            self._blocks.add(digest)
        return repeated // CHARS_PER_TOKEN

    def paid(self, request_id: str, prompt: bytes, usage: Usage) -> None:
        """Count a generated answer to the prompt of this digest; an empty id is nobody's."""
        self._usage = self._usage.plus(usage)
        self._prompts[prompt] += 1
        if request_id:
            self._ids[request_id] += 1

    def report(self, mistakes: Counter[str]) -> Report:
        """Return the counts."""
        return Report(
            requests=self.requests,
            at_once=self._at_once,
            paid=self._prompts.total(),
            replayed=self.replayed,
            answered=self.answered,
            abandoned=self.abandoned,
            refused=self.refused,
            faults=dict(self.faults),
            mistakes=dict(mistakes),
            prompt_tokens=self._usage.prompt_tokens,
            cached_tokens=self._usage.cached_tokens,
            completion_tokens=self._usage.completion_tokens,
            ids_paid_twice=tuple(sorted(name for name, count in self._ids.items() if count > 1)),
            prompts_paid_twice=sum(count > 1 for count in self._prompts.values()),
        )
