"""The interface of models: requests, answers, usage, token estimates; models composed of others or of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias

import anyio
import msgspec

from messages.base import EndpointFault, ModelError, Usage

CHARS_PER_TOKEN = 4
"""English prose has 4 to 5 characters per token, code 3 to 4."""


def estimated_tokens(text: str) -> int:
    """Return the estimated number of tokens of `text`, at least 1."""
    return max(1, len(text) // CHARS_PER_TOKEN)


def estimated_usage(request: Request, text: str) -> Usage:
    """Return the expected cost of a call: one call, tokens estimated, nothing cached."""
    return Usage(
        calls=1,
        prompt_tokens=estimated_tokens(request.system) + estimated_tokens(request.prompt),
        completion_tokens=estimated_tokens(text),
    )


Role: TypeAlias = Literal["planner", "coder"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
"""Amount of hidden reasoning. Each model supports only some values."""


class Ending(Protocol):
    """Reads an answer while it arrives, and decides when it is complete."""

    @property
    def patience_chars(self) -> int:
        """Characters to read of a complete answer before it is ended."""

    def take(self, piece: str) -> bool:
        """Read on; True if everything needed has been read. May be False again later."""


class AnswerSchema(msgspec.Struct, frozen=True, kw_only=True):
    """JSON form of an answer, for endpoints that can constrain a model to it."""

    name: str
    """Letters, digits and underscores."""
    schema: Mapping[str, object]
    """JSON schema in OpenAI's strict form; see `actors.llm.features`."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One question. Parts are ordered for prefix caching: rules first, then task, tree, this node."""

    request_id: str
    """The job's id. The same id is the same question, on redelivery and on resume."""
    role: Role
    system: str
    """Rules, the same in every call of this role."""
    parts: tuple[str, ...]
    """The user message, from the least to the most changing part; joined by blank lines."""
    ending: Callable[[], Ending] | None = None
    """Makes the reader of one try's answer; None: only the endpoint knows when it ends."""
    schema: AnswerSchema | None = None
    """Schema, used where the endpoint supports it; the rules describe the same form in words."""
    model: str = ""
    """Name of one of several models; empty: the only one, or the first."""

    @property
    def prompt(self) -> str:
        """The user message as one text."""
        return "\n\n".join(self.parts)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer."""

    text: str
    model: str
    usage: Usage
    latency_s: float
    finish_reason: str = "stop"
    """Finish reason in the endpoint's words: `stop`, `length`, `content_filter`, …; `ended_early`: complete, and the
    rest was not read."""
    faults: tuple[EndpointFault, ...] = ()
    """Tries that failed before this answer."""


class Model(Protocol):
    """A dialect."""

    async def complete(self, request: Request) -> Answer:
        """Answer one question. Safe to call many times at once.

        Raises:
            messages.base.ModelError: the endpoint failed; `permanent` if trying again cannot help.
        """

    async def aclose(self) -> None:
        """Release connections."""


def rules_digest(system: str) -> str:
    """Return the digest of a question's rules: blake2b-128, hex."""
    return blake2b(system.encode("utf-8", "replace"), digest_size=16).hexdigest()


SHORTEST = 6
"""Shorter keys are not masked: `x`, `key` and `EMPTY` are given to endpoints that need none."""
_SHORTEST_IN_ANSWERS = 16
"""The same for answers, which are programs: `kernel` must stay. Providers' keys are longer."""
HIDDEN = "***"


def masked(text: str, key: str) -> str:
    """Return an error with `***` in place of a key: errors and answers are shown and journalled."""
    return text.replace(key, HIDDEN) if len(key) >= SHORTEST else text


def masked_answer(text: str, key: str) -> str:
    """Return an answer with `***` in place of a key."""
    return text.replace(key, HIDDEN) if len(key) >= _SHORTEST_IN_ANSWERS else text


class Ensemble:
    """Several models as one: a question goes to the planner's model, or to the coder model that it names."""

    def __init__(self, planner: Model, coders: Mapping[str, Model]) -> None:
        """Begin with these models, which are closed with this one. Coder models have names; the first is default."""
        self._planner = planner
        self._coders = dict(coders)

    async def complete(self, request: Request) -> Answer:
        """See `Model.complete`; a permanent `ModelError` if the question names an unknown model."""
        if request.role == "planner":
            return await self._planner.complete(request)
        found = self._coders.get(request.model or next(iter(self._coders)))
        if found is None:
            here = ", ".join(self._coders)
            raise ModelError(f"model {request.model!r} is asked for, and this coder has {here}", permanent=True)
        return await found.complete(request)

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        for model in {id(model): model for model in (self._planner, *self._coders.values())}.values():
            await model.aclose()


class ScriptedModel:
    """Answers with `answers(request)` after `latency_s`, or raises it if it is an exception. For tests."""

    def __init__(self, answers: Callable[[Request], str | Exception], *, latency_s: float = 0.0) -> None:
        self._answers = answers
        self._latency_s = latency_s

    async def complete(self, request: Request) -> Answer:
        """See `Model.complete`."""
        started = anyio.current_time()
        await anyio.sleep(self._latency_s)
        text = self._answers(request)
        if isinstance(text, Exception):
            raise text
        return Answer(
            text=text,
            model="scripted",
            usage=estimated_usage(request, text),
            latency_s=anyio.current_time() - started,
        )

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""
