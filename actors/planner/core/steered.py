"""What people ordered, as folds: instructions, pins, boosts, what is forbidden, and candidates of their own."""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.entries import put_node
from actors.planner.core.lifecycle import folds_in
from actors.planner.core.state import Branch, Instruction, Node, SearchState
from actors.planner.core.tree import with_all_below
from messages.steering import (
    CandidateGiven,
    InstructionForgotten,
    InstructionGiven,
    NodeBoosted,
    NodeForbidden,
    NodePinned,
    NodeReleased,
    SteeringRefused,
)


def chosen(node: Node, branch: Branch) -> Node:
    """Return a node on which a branch begins: a pin is for one choice, and extra samples are none."""
    return node if branch.extra else replace(node, pinned=0)


@folds_in(InstructionGiven)
def _given(state: SearchState, fact: InstructionGiven) -> SearchState:
    instruction = Instruction(number=fact.number, text=fact.text, to=fact.to)
    return replace(state, instructions=(*state.instructions, instruction), instructions_given=fact.number)


@folds_in(InstructionForgotten)
def _forgotten(state: SearchState, fact: InstructionForgotten) -> SearchState:
    kept = tuple(instruction for instruction in state.instructions if instruction.number != fact.number)
    return replace(state, instructions=kept)


@folds_in(NodePinned)
def _pinned(state: SearchState, fact: NodePinned) -> SearchState:
    """Remember when: of several the first is chosen first. What was pruned is open again."""
    node = state.node(fact.node_id)
    node = replace(node, pinned=node.pinned or state.facts + 1)
    if node.state == "pruned":
        node = replace(node, state="open", prune_reason="", given_up=False)
    return put_node(state, node)


@folds_in(NodeBoosted)
def _boosted(state: SearchState, fact: NodeBoosted) -> SearchState:
    return put_node(state, replace(state.node(fact.node_id), boost=fact.by))


@folds_in(NodeForbidden)
def _forbidden(state: SearchState, fact: NodeForbidden) -> SearchState:
    node = replace(state.node(fact.node_id), forbidden=fact.reason, pinned=0)
    return _barred_below(put_node(state, node), fact.node_id)


@folds_in(NodeReleased)
def _released(state: SearchState, fact: NodeReleased) -> SearchState:
    node = replace(state.node(fact.node_id), forbidden=None, pinned=0, boost=0.0)
    return _barred_below(put_node(state, node), fact.node_id)


@folds_in(CandidateGiven)
def _candidate_given(state: SearchState, fact: CandidateGiven) -> SearchState:
    return put_node(state, replace(state.node(fact.node_id), given_id=fact.candidate_id))


@folds_in(SteeringRefused)
def _refused(state: SearchState, _fact: SteeringRefused) -> SearchState:
    return state


def _barred_below(state: SearchState, node_id: str) -> SearchState:
    """Say anew of a node and all below it whether it, or a node above it, is forbidden."""
    for node in list(with_all_below(state, state.node(node_id))):
        above = bool(node.parent_id) and state.node(node.parent_id).barred
        barred = above or node.forbidden is not None
        if barred != node.barred:
            state = put_node(state, replace(state.node(node.node_id), barred=barred))
    return state
