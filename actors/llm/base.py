"""What the actors ask of a model, and what they get."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from messages.base import Usage
from messages.faults import EndpointFault

Role: TypeAlias = Literal["planner", "coder"]
ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
"""How much hidden reasoning an endpoint is asked for; which of them a model knows is the model's."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One question. Parts are ordered for prefix caching: rules first, then task, tree, this node."""

    request_id: str
    """The job's id: the same id is the same question, on redelivery and on resume."""
    role: Role
    system: str
    """Rules that are the same in every call of this role."""
    parts: tuple[str, ...]
    """The user message, from what changes least to what changes most; joined by blank lines."""

    @property
    def prompt(self) -> str:
        """The user message as one text."""
        return "\n\n".join(self.parts)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    text: str
    model: str
    usage: Usage
    latency_s: float
    finish_reason: str = "stop"
    """As the endpoint says it: `stop`, `length`, `content_filter`, …"""
    faults: tuple[EndpointFault, ...] = ()
    """Tries that failed before this answer came."""


class Model(Protocol):
    """A dialect."""

    async def complete(self, request: Request) -> Answer:
        """Answer one question. Safe to call many times at once.

        Raises:
            messages.errors.ModelError: the endpoint failed; `permanent` if trying again cannot help.
        """

    async def aclose(self) -> None:
        """Release connections."""
