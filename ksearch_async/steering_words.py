"""What people ordered of a search, in words: for the lines of a run, and for whoever ordered it."""

from __future__ import annotations

from actors.planner.core.state import SearchState
from messages.facts import Fact, NodeInserted
from messages.steering import (
    Audience,
    InstructionForgotten,
    InstructionGiven,
    NodeBoosted,
    NodeForbidden,
    NodePinned,
    NodeReleased,
    SteeringRefused,
)

AUDIENCES: dict[Audience, str] = {"both": "planner and coders", "planner": "the planner", "coder": "the coders"}


def steering_words(fact: Fact, state: SearchState) -> str:
    """Say what a person's order led to; nothing for any other fact.

    Args:
        fact: folded already.
        state: the search after it.
    """
    match fact:
        case InstructionGiven(number=number, text=text, to=to):
            return f"instruction {number}, to {AUDIENCES[to]}: {text}"
        case InstructionForgotten(number=number):
            return f"instruction {number} is forgotten"
        case NodeInserted(node_id=node_id, parent_id=parent_id, origin="person", title=title):
            return f"{node_id} is a kernel of one's own under {parent_id}: {title}"
        case SteeringRefused(reason=reason):
            return f"refused: {reason}"
        case _:
            return _node_words(fact, state)


def _node_words(fact: Fact, state: SearchState) -> str:
    match fact:
        case NodePinned(node_id=node_id):
            return f"{node_id} is pinned: {_when(state, node_id)}"
        case NodeBoosted(node_id=node_id, by=by):
            return f"{by:+.2f} on the score of {node_id}"
        case NodeForbidden(node_id=node_id, reason=reason):
            why = f" ({reason})" if reason else ""
            return f"{node_id} is forbidden, and all below it{_what_ends(state)}{why}"
        case NodeReleased(node_id=node_id):
            return f"{node_id} is released: it counts for its own score"
        case _:
            return ""


def _when(state: SearchState, node_id: str) -> str:
    node = state.node(node_id)
    if node.state == "in_flight":
        return "its branch has begun"
    if node_id in state.frontier_ids:
        return "it is chosen as soon as a branch is free"
    return f"it is chosen once {node.parent_id} has a correct candidate"


def _what_ends(state: SearchState) -> str:
    at_work = any(state.node(branch.node_id).barred for branch in state.branches.values())
    return "; what is in flight there ends after its attempt" if at_work else ""
