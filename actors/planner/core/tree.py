"""Questions about the tree: who may be chosen, who needs children, who lies above whom."""

from __future__ import annotations

from collections.abc import Iterator

from actors.planner.core.state import Node, SearchState, in_order
from messages.base import ROOT


def frontier(state: SearchState) -> list[Node]:
    """Return the open nodes whose parent is the root or closed, in order of insertion."""
    return [
        node for node in in_order(state.nodes) if node.state == "open" and state.node(node.parent_id).state == "closed"
    ]


def ancestors(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the parent, its parent, … up to the root."""
    while node.parent_id:
        node = state.node(node.parent_id)
        yield node


def childless(state: SearchState) -> list[Node]:
    """Return the closed nodes that still may get children and have none open or in flight, best first."""
    found = [node for node in in_order(state.nodes) if _lacks_children(state, node)]
    return sorted(found, key=lambda node: -worth(node))


def worth(node: Node) -> float:
    """Return a closed node's credit; the root counts as 1, an untimed candidate as 0."""
    if node.node_id == ROOT:
        return 1.0
    return node.best.credit or 0.0 if node.best else 0.0


def live_parent(state: SearchState, node: Node) -> Node:
    """Return the node itself, or the nearest ancestor that the machine has not given up."""
    while node.given_up:
        node = state.node(node.parent_id)
    return node


def path_titles(state: SearchState, node_id: str) -> tuple[str, ...]:
    """Return the titles of the actions from the root's child down to the node."""
    node = state.node(node_id)
    above = [ancestor.title for ancestor in ancestors(state, node) if ancestor.node_id != ROOT]
    return (*reversed(above), node.title)


def _lacks_children(state: SearchState, node: Node) -> bool:
    if node.state != "closed" or node.spent or node.node_id == ROOT:
        return False
    return not any(state.node(child).state in ("open", "in_flight") for child in node.children)
