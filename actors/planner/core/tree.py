"""Questions about the tree: who may be chosen, who needs children, who lies above whom."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from actors.planner.core.state import Node, SearchState, number_of
from messages.base import ROOT


def frontier(state: SearchState) -> list[Node]:
    """Return the open nodes whose parent is the root or closed, in order of insertion.

    A parent that the machine has given up stands in nobody's way: its children then build on what is above it. So an
    action that only names a family of others does not bury them.
    """
    return [state.nodes[node_id] for node_id in sorted(state.frontier_ids, key=number_of)]


def ancestors(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the parent, its parent, … up to the root."""
    while node.parent_id:
        node = state.node(node.parent_id)
        yield node


def childless(state: SearchState) -> list[Node]:
    """Return the barren nodes, best first: closed, may get children, and have none open or in flight."""
    nodes = [state.nodes[node_id] for node_id in state.barren_ids]
    return sorted(nodes, key=lambda node: (-worth(node), number_of(node.node_id)))


def worth(node: Node) -> float:
    """Return a closed node's credit; a root without a score counts as 1, an untimed candidate as 0."""
    if node.best is None:
        return 1.0 if node.node_id == ROOT else 0.0
    return node.best.credit or 0.0


def with_all_below(state: SearchState, node: Node) -> Iterator[Node]:
    """Yield the node and all its descendants, parents before children."""
    waiting = [node.node_id]
    while waiting:
        found = state.node(waiting.pop())
        yield found
        waiting.extend(found.children)


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


def settled(node: Node, max_tries: int) -> Node:
    """Return a node whose last branch has ended, in the state that follows."""
    if node.best is not None:
        return replace(node, state="closed", spent=node.spent or bool(node.prune_reason))
    if node.prune_reason:
        return replace(node, state="pruned")
    if node.failures >= max_tries:
        reason = f"{node.failures} branches ended without a correct candidate"
        return replace(node, state="pruned", given_up=True, prune_reason=reason)
    return replace(node, state="open")
