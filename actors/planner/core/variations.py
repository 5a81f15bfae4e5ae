"""Actions that the machine makes where the planner's model has none: direct attempts, and variations of results."""

from __future__ import annotations

from actors.planner.core.state import Node, SearchState, in_order
from actors.planner.core.step import Step
from actors.planner.core.tree import worth
from messages.base import ROOT
from messages.facts import NodeInserted

_PRIORITY = 0.2
_VARY = (
    "Keep the algorithm and vary how it is carried out: block sizes, loop order, unrolling, vector width, number of "
    "accumulators, memory access. Change one thing at a time and say which."
)
_VARY_SCORED = (
    "Keep what makes the base code score well and vary one thing about it: a parameter, a data structure, a step of "
    "the algorithm. Say which."
)
_ATTEMPT_SCORED = "Write a program that scores higher than any so far."
_ATTEMPT_DIRECTLY = "Write the fastest correct program you can, fusing what the reference does in separate passes."


def vary(step: Step, node: Node) -> None:
    """Hang an action of the machine's under a closed node: under the root, a direct attempt at the task."""
    title = "Direct attempt" if node.node_id == ROOT else f"Vary {node.node_id}"
    texts = (_ATTEMPT_SCORED, _VARY_SCORED) if step.state.scored else (_ATTEMPT_DIRECTLY, _VARY)
    number = 1 + _variations(step.state, node)
    step.take(
        NodeInserted(
            node_id=f"n{len(step.state.nodes)}",
            parent_id=node.node_id,
            title=title if number == 1 else f"{title}, number {number}",
            description=texts[node.node_id != ROOT],
            difficulty=1,
            priority=_PRIORITY,
            origin="machine",
        )
    )


def is_varied(state: SearchState, node: Node) -> bool:
    """Say whether a node has a child of the machine's."""
    return _variations(state, node) > 0


def best_unvaried(state: SearchState) -> Node | None:
    """Return the best closed node that the machine has neither made nor varied; the root comes last."""
    closed = [node for node in in_order(state.nodes) if node.state == "closed" and not is_varied(state, node)]
    ranked = sorted(closed, key=lambda node: -worth(node) if node.node_id != ROOT else 0.0)
    return next((node for node in ranked if node.origin != "machine" and not node.barred), None)


def most_promising(state: SearchState) -> Node:
    """Return the closed node that is to be varied next, however often it was.

    Of the closed nodes, best first, the p-th is as promising as the best once the best has p variations more: the best
    results are varied most, and several slots do not all vary the same one. The root is always among them.
    """
    closed = [node for node in in_order(state.nodes) if node.state == "closed" and not (node.spent or node.barred)]
    ranked = sorted(closed, key=lambda node: -worth(node))
    places = [(place + _variations(state, node), place) for place, node in enumerate(ranked)]
    return ranked[min(places)[1]]


def _variations(state: SearchState, node: Node) -> int:
    return sum(state.node(child).origin == "machine" for child in node.children)
