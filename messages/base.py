"""The base of all messages, identifiers and roles, and the errors that actors raise."""

from __future__ import annotations

from collections import Counter
from typing import Literal, TypeAlias, TypeVar

import msgspec

Language: TypeAlias = Literal["cpp", "triton", "cuda", "python"]
"""Language of a candidate."""
Isolation: TypeAlias = Literal["auto", "strict"]
"""Protection of the host from candidates: every mechanism that the host offers, or refusal to run without the required
ones."""

EditFormat: TypeAlias = Literal["auto", "whole", "search-replace"]
"""How a coder answers: with complete files, or with blocks that replace parts of the code it was shown. `auto`: whole
files until the code is long."""

Role: TypeAlias = Literal["planner", "coder", "builder", "evaluator"]
"""Role of a process; also of the publisher of an event."""

ROOT = "n0"
"""Id of the world model's root node; it stands for the reference program and carries no action."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A value that travels or is kept: immutable, keyword-only, tolerant of fields it does not know.

    msgspec does not inherit `kw_only`: every subclass repeats `frozen=True, kw_only=True`.
    """


S = TypeVar("S", bound=msgspec.Struct)


def copied(kind: type[S], source: msgspec.Struct, **changes: object) -> S:
    """Return a struct of `kind` with the fields that `source` has too, and with `changes`."""
    shared = {name: getattr(source, name) for name in kind.__struct_fields__ if name in source.__struct_fields__}
    return kind(**(shared | changes))


class Usage(Message, frozen=True, kw_only=True):
    """Cost of one or more answers of a model, as its endpoint reported it."""

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Part of `prompt_tokens` that the endpoint served from its prefix cache."""
    completion_tokens: int = 0
    """Output tokens, hidden reasoning included."""
    reasoning_tokens: int = 0
    """Part of `completion_tokens` that the endpoint says was hidden reasoning."""
    estimated_calls: int = 0
    """Part of `calls` with estimated tokens: their endpoint reported none, or the answer was ended early."""

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


class EndpointFault(Message, frozen=True, kw_only=True):
    """A try of a model call that failed. The call went on with another try, or was given up."""

    kind: str
    """`rate_limited`, `server_error`, `refused`, `timed_out`, `unreachable`, `broken_off`, `too_long`, `malformed`."""
    status: int | None = None
    """HTTP status, where there was an answer."""
    detail: str = ""
    """Text of the endpoint or the connection, shortened."""
    elapsed_s: float = 0.0
    """Duration of the try."""
    retry_after_s: float | None = None
    """Pause that the endpoint asked for."""

    @property
    def words(self) -> str:
        """The kind, and the status where it says more: `server_error (HTTP 503)`."""
        return f"{self.kind} (HTTP {self.status})" if self.status is not None else self.kind


def fault_words(faults: tuple[EndpointFault, ...]) -> str:
    """Count faults by kind, most frequent first: `2 rate_limited (HTTP 429), 1 broken_off`."""
    counted = Counter(fault.words for fault in faults)
    return ", ".join(f"{count} {words}" for words, count in counted.most_common())


class KsearchError(Exception):
    """Base of all errors that ksearch raises on purpose."""


class ConfigError(KsearchError):
    """The user's input cannot be used; the text says what to change. Exit code 2."""


class ProtocolError(KsearchError):
    """A peer broke the contract: an answer to a question that was never asked."""


class BoundaryError(KsearchError):
    """Something outside failed."""


class ModelError(BoundaryError):
    """The model's endpoint failed. `permanent` if trying again cannot help; `faults` are the tries that failed."""

    def __init__(self, text: str, *, permanent: bool = False, faults: tuple[EndpointFault, ...] = ()) -> None:
        super().__init__(text)
        self.permanent = permanent
        self.faults = faults


class EvaluatorError(BoundaryError):
    """Builder or evaluator failed; never the candidate's fault. `permanent` if trying again here cannot help."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


class BusError(BoundaryError):
    """The bus or its store failed."""
