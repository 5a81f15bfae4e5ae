"""The struct that every message derives from, and the words that several messages share."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Language: TypeAlias = Literal["cpp", "triton", "cuda", "python"]
"""What a candidate is written in."""
Isolation: TypeAlias = Literal["auto", "strict"]
"""How a candidate is kept from its host: by what the host has, or not at all run with less than is needed."""

EditFormat: TypeAlias = Literal["auto", "whole", "search-replace"]
"""How a coder answers: with complete files, or with blocks that replace parts of the code it was shown. `auto`: whole
files until the code is long."""

Role: TypeAlias = Literal["planner", "coder", "builder", "evaluator"]
"""What a process of ksearch does; also who says something on a run's event stream."""

ROOT = "n0"
"""Id of the world model's root node; it stands for the reference program and carries no action."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A value that travels or is kept: immutable, keyword-only, tolerant of fields it does not know.

    msgspec does not inherit `kw_only`: every subclass repeats `frozen=True, kw_only=True`.
    """


class Usage(Message, frozen=True, kw_only=True):
    """What one or more answers of a model cost, as its endpoint reported it."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of `prompt_tokens` that the endpoint served from its prefix cache."""
    completion_tokens: int = 0
    """Output tokens, hidden reasoning included."""
    reasoning_tokens: int = 0
    """Part of `completion_tokens` that the endpoint says was hidden reasoning."""
    estimated_calls: int = 0
    """Part of `calls` whose tokens are estimates: their endpoint reported none, or the answer was ended early."""

    def plus(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated_calls=self.estimated_calls + other.estimated_calls,
        )

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens
