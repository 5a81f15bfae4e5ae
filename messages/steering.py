"""Orders of people to a running search, and the facts that the planner makes of them.

An order that cannot be carried out is refused with a reason; it never stops a run.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from messages.base import ROOT, Message
from messages.tasks import Candidate

Audience: TypeAlias = Literal["planner", "coder", "both"]
"""The model that reads an instruction."""


class Instruct(msgspec.Struct, frozen=True, kw_only=True, tag="instruct"):
    """Tell the models something: it stands in every further prompt until it is forgotten."""

    text: str
    to: Audience = "both"


class Forget(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """Tell it no longer."""

    number: int


class Pin(msgspec.Struct, frozen=True, kw_only=True, tag="pin"):
    """Have an action chosen next, once, whatever its score."""

    node_id: str


class Boost(msgspec.Struct, frozen=True, kw_only=True, tag="boost"):
    """Add to an action's score, in place of what was added before."""

    node_id: str
    by: float


class Forbid(msgspec.Struct, frozen=True, kw_only=True, tag="forbid"):
    """Never choose an action, nor any below it; branches at work on them end after the attempt under way."""

    node_id: str
    reason: str = ""


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """Take back whatever was ordered for a node: it is chosen by its own score again."""

    node_id: str


class Inject(msgspec.Struct, frozen=True, kw_only=True, tag="inject"):
    """Add your own candidate under a node: it is built, evaluated and attached as any other."""

    candidate: Candidate
    node_id: str = ROOT
    """Its parent."""
    title: str = ""
    """Of the new action; empty: the machine names it."""
    description: str = ""


Steering: TypeAlias = Instruct | Forget | Pin | Boost | Forbid | Release | Inject


class SteeringRequested(Message, frozen=True, kw_only=True, tag="steering.requested.v1"):
    """A person wants the search to go another way."""

    order: Steering


class InstructionGiven(Message, frozen=True, kw_only=True, tag="instruction.given.v1"):
    """The models read this from now on."""

    number: int
    """From 1; by it people have it forgotten."""
    text: str
    to: Audience


class InstructionForgotten(Message, frozen=True, kw_only=True, tag="instruction.forgotten.v1"):
    """The models read this no longer."""

    number: int


class NodePinned(Message, frozen=True, kw_only=True, tag="node.pinned.v1"):
    """This action is chosen next, after those that were pinned before it."""

    node_id: str


class NodeBoosted(Message, frozen=True, kw_only=True, tag="node.boosted.v1"):
    """This is added to the action's score."""

    node_id: str
    by: float


class NodeForbidden(Message, frozen=True, kw_only=True, tag="node.forbidden.v1"):
    """Neither this action nor any below it is chosen."""

    node_id: str
    reason: str = ""


class NodeReleased(Message, frozen=True, kw_only=True, tag="node.released.v1"):
    """Neither pinned, nor boosted, nor forbidden any more."""

    node_id: str


class CandidateGiven(Message, frozen=True, kw_only=True, tag="candidate.given.v1"):
    """The first attempt at an action is a candidate that is there already."""

    node_id: str
    candidate_id: str


class SteeringRefused(Message, frozen=True, kw_only=True, tag="steering.refused.v1"):
    """A person's order was not carried out; nothing changed."""

    reason: str


SteeringFact: TypeAlias = (
    InstructionGiven
    | InstructionForgotten
    | NodePinned
    | NodeBoosted
    | NodeForbidden
    | NodeReleased
    | CandidateGiven
    | SteeringRefused
)
