"""What becomes of the tree, and what its model is asked: facts of the planner's."""

from __future__ import annotations

from typing import Literal, TypeAlias

from messages.base import Message
from messages.edits import Refusal

Origin: TypeAlias = Literal["model", "machine", "person"]
CallPurpose: TypeAlias = Literal["analyse", "revise"]


class NodeInserted(Message, frozen=True, kw_only=True, tag="node.inserted.v1"):
    """A new action hangs in the tree."""

    node_id: str
    parent_id: str
    title: str
    description: str
    difficulty: int
    priority: float
    expected_gain: float | None = None
    """Factor over the base that it is expected to bring; null: nobody said."""
    second_id: str = ""
    """A closed node of another branch whose technique is to be merged; empty: none."""
    origin: Origin = "model"
    earlier: str = ""
    """What came of it in the run that it was inherited from; empty for what this run thought of."""


class NodeUpdated(Message, frozen=True, kw_only=True, tag="node.updated.v1"):
    """What is believed of an action changed; null stays."""

    node_id: str
    title: str | None = None
    description: str | None = None
    difficulty: int | None = None
    priority: float | None = None
    expected_gain: float | None = None


class NodePruned(Message, frozen=True, kw_only=True, tag="node.pruned.v1"):
    """An action was given up: if in flight, when its branches end; if closed, it gets no more children."""

    node_id: str
    reason: str


class NodeSpent(Message, frozen=True, kw_only=True, tag="node.spent.v1"):
    """A closed node will get no further children."""

    node_id: str


class PlanRequested(Message, frozen=True, kw_only=True, tag="plan.requested.v1"):
    """The planner's model is asked for edits. Reports that arrive meanwhile wait for the next call (group commit)."""

    job_id: str
    purpose: CallPurpose
    branch_ids: tuple[str, ...] = ()
    """Finished branches that this call tells of."""
    wanted: int = 0
    """New actions asked for."""
    childless: tuple[str, ...] = ()
    """Closed nodes without an open child, asked about once."""
    refusals: tuple[Refusal, ...] = ()
    """Why the previous answer was refused."""
    tries: int = 0
    """Refusals so far."""
    renews: bool = False
    """The whole tree is written anew for this call; otherwise what changed is added to what earlier ones were told."""
    lost: int = 0
    """Times that the infrastructure lost this question before."""


class EditsRefused(Message, frozen=True, kw_only=True, tag="edits.refused.v1"):
    """A script was refused as a whole; nothing of it was applied."""

    job_id: str
    refusals: tuple[Refusal, ...]


class EditsApplied(Message, frozen=True, kw_only=True, tag="edits.applied.v1"):
    """A script took effect, whole or (after the last refusal) in the part that depends on nothing refused."""

    job_id: str
    changes: tuple[NodeInserted | NodeUpdated | NodePruned, ...]
    refusals: tuple[Refusal, ...] = ()
    """What was left out, and why."""
    summary: str = ""
    open_questions: tuple[str, ...] = ()


class PlanAbandoned(Message, frozen=True, kw_only=True, tag="plan.abandoned.v1"):
    """A call for edits brought nothing usable; its reports are dropped, the machine's rules go on."""

    job_id: str
    reason: str
