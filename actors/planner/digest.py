"""The whole tree for a model: one line per node, within a budget that degrades by age and depth.

Lines stand in order of insertion: parents come before children, siblings are in order of their ids, and new nodes
lengthen the text at its end, which is good for prefix caches. A line is shown whole or not at all. What gives way:

1. the tails of titles of nodes that are done with (pruned, or closed and not lately inserted);
2. old, deep subtrees in which nothing is open or in flight: one line counts what was under a node;
3. open nodes of low V and whatever is left, oldest first: one line at the end counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from actors.planner.core.state import Node, SearchState, in_order
from messages.base import ROOT

CHARS_PER_TOKEN = 4
"""A rule of thumb; the budget needs no more."""
_RECENT = 64
"""The last nodes inserted keep their whole titles."""
_SHORT_TITLE = 32


def tree_digest(state: SearchState, *, budget_tokens: int, shown: Iterable[str] = ()) -> str:
    """Return the tree's lines.

    Args:
        state: the search now.
        budget_tokens: about how long the text may be.
        shown: ids of nodes that the prompt speaks of; they give way last.
    """
    nodes = in_order(state.nodes)
    budget = budget_tokens * CHARS_PER_TOKEN
    lines = {node.node_id: node_line(node) for node in nodes}
    size = _size(lines)
    if size <= budget:
        return "\n".join(lines.values())
    size = _shorten(nodes, lines, size)
    protected = {ROOT, *shown} | ({state.incumbent.node_id} if state.incumbent else set())
    notes: dict[str, str] = {}
    if size > budget:
        notes = _fold(nodes, lines, size - budget, protected)
        size = _size(lines) + _size(notes)
    left_out = _leave_out(nodes, lines, size - budget, protected) if size > budget else ""
    text = [part for node_id, line in lines.items() for part in (line, notes.get(node_id)) if part]
    return "\n".join([*text, left_out] if left_out else text)


@lru_cache(maxsize=8192)
def node_line(node: Node, *, short: bool = False) -> str:
    """Return a node in one line: id, parent, state, V, difficulty, title, best result, tries, how they ended."""
    if node.node_id == ROOT:
        return f"{ROOT} | root | the reference program, speedup 1.00x"
    parts = [
        f"{node.node_id} < {node.parent_id}",
        _state(node),
        f"V {node.priority:.2f}",
        f"d{node.difficulty}",
        _short(node.title) if short else node.title,
    ]
    if node.best is not None:
        parts.append(_best(node))
    if node.tries or node.rounds:
        parts.append(f"{node.tries} tries, {node.rounds} rounds")
    if node.fates:
        parts.append(", ".join(f"{fate} {count}" for fate, count in node.fates))
    return " | ".join(parts)


def _state(node: Node) -> str:
    if node.state == "pruned":
        return "given up" if node.given_up else "pruned"
    if node.state == "closed" and node.spent:
        return "spent"
    return node.state.replace("_", " ")


def _best(node: Node) -> str:
    best = node.best
    if best is None or best.speedup is None or best.credit is None:
        return "best: correct, not timed"
    return f"best {best.speedup:.2f}x (credit {best.credit:.2f})"


def _short(title: str) -> str:
    """Drop a title's last words; what is left is whole words."""
    if len(title) <= _SHORT_TITLE:
        return title
    head, _, _ = title[:_SHORT_TITLE].rpartition(" ")
    return f"{head or title[:_SHORT_TITLE]} …"


def _size(lines: dict[str, str]) -> int:
    return sum(map(len, lines.values())) + len(lines)


def _shorten(nodes: list[Node], lines: dict[str, str], size: int) -> int:
    """Drop the tails of titles of what is done with. Returns the new size."""
    for position, node in enumerate(nodes):
        is_old = position < len(nodes) - _RECENT
        if node.state == "pruned" or (node.state == "closed" and is_old):
            line = node_line(node, short=True)
            size -= len(lines[node.node_id]) - len(line)
            lines[node.node_id] = line
    return size


class _Subtree(msgspec.Struct):
    """What lies at and under a node."""

    settled: bool
    """Nothing in it is open, in flight or spoken of."""
    states: Counter[str]
    best: Node | None


def _fold(nodes: list[Node], lines: dict[str, str], excess: int, protected: set[str]) -> dict[str, str]:
    """Replace settled subtrees by counts, deepest and oldest first, until `excess` characters are gone.

    Returns:
        The counts, by the node under which they stand.
    """
    subtrees = _subtrees(nodes, protected)
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        if subtrees[node.node_id].settled and not subtrees[node.parent_id].settled:
            groups.setdefault(node.parent_id, []).append(node)
    notes: dict[str, str] = {}
    for parent_id, tops in sorted(groups.items(), key=lambda group: (-group[1][0].depth, _age(group[1]))):
        if excess <= 0:
            break
        notes[parent_id] = _note(parent_id, [subtrees[top.node_id] for top in tops])
        excess += len(notes[parent_id]) + 1
        for node_id in _below(tops, nodes):
            excess -= len(lines.pop(node_id)) + 1
    return notes


def _subtrees(nodes: list[Node], protected: set[str]) -> dict[str, _Subtree]:
    """Sum the tree up from its leaves: children have larger ids than parents."""
    found = {
        node.node_id: _Subtree(
            settled=node.state in {"closed", "pruned"} and node.node_id not in protected,
            states=Counter([_state(node)]),
            best=node if _credit(node) else None,
        )
        for node in nodes
    }
    for node in reversed(nodes[1:]):
        own, parent = found[node.node_id], found[node.parent_id]
        parent.settled = parent.settled and own.settled
        if own.settled:
            parent.states.update(own.states)
            parent.best = max((best for best in (parent.best, own.best) if best), key=_credit, default=None)
    return found


def _credit(node: Node) -> float:
    return node.best.credit or 0.0 if node.best else 0.0


def _age(tops: list[Node]) -> int:
    return int(tops[-1].node_id[1:])


def _note(parent_id: str, subtrees: list[_Subtree]) -> str:
    states: Counter[str] = sum((subtree.states for subtree in subtrees), Counter())
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    bests = [subtree.best for subtree in subtrees if subtree.best is not None]
    best = max(bests, key=_credit, default=None)
    shown = f"; best {best.node_id}: {_credit(best):.2f}" if best is not None else ""
    return f"({states.total()} more below {parent_id}: {counts}{shown})"


def _below(tops: list[Node], nodes: list[Node]) -> list[str]:
    """Return the ids of `tops` and of all that lies under them."""
    by_id = {node.node_id: node for node in nodes}
    waiting, found = [top.node_id for top in tops], []
    while waiting:
        node_id = waiting.pop()
        found.append(node_id)
        waiting.extend(by_id[node_id].children)
    return found


def _leave_out(nodes: list[Node], lines: dict[str, str], excess: int, protected: set[str]) -> str:
    """Leave lines out, least interesting first, and count them."""
    left: Counter[str] = Counter()
    present = [node for node in nodes if node.node_id in lines and node.node_id not in protected]
    for node in sorted(present, key=_interest):
        if excess <= -_NOTE_CHARS:
            break
        excess -= len(lines.pop(node.node_id)) + 1
        left[_state(node)] += 1
    counts = ", ".join(f"{count} {state}" for state, count in sorted(left.items()))
    return f"({left.total()} more nodes: {counts})" if left else ""


_NOTE_CHARS = 120
"""Room for the line that counts what was left out."""


def _interest(node: Node) -> tuple[int, float, int]:
    """Rank lines: what is done with, then open nodes by V, then nodes in flight; among equals the newer is kept."""
    rank = {"pruned": 0, "closed": 1, "open": 2, "in_flight": 3}[node.state]
    return rank, node.priority if node.state == "open" else _credit(node), int(node.node_id[1:])
