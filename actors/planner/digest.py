"""The whole tree for a model: one line per node, within a budget that degrades by age and depth.

Lines stand in order of insertion: parents come before children, siblings are in order of their ids, and new nodes
lengthen the text at its end, which is good for prefix caches. A line is shown whole or not at all. What gives way:

1. the tails of titles of nodes that are done with (pruned, or closed and not lately inserted);
2. old, deep subtrees in which nothing is open or in flight: one line counts what was under a node;
3. open nodes of low V and whatever is left, oldest first: one line at the end counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from actors.planner.core.state import Node, SearchState, in_order
from messages.base import ROOT
from messages.verdicts import worth_text

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
    hidden: dict[str, _Hidden] = {}
    left_out = ""
    if size > budget:
        hidden = _fold(nodes, lines, size - budget, protected)
        size = _size(lines) + _size(_notes(hidden))
    if size > budget:
        left_out = _leave_out(nodes, lines, hidden, size - budget, protected)
    notes = _notes(hidden)
    text = [part for node_id, line in lines.items() for part in (line, notes.get(node_id)) if part]
    return "\n".join([*text, left_out] if left_out else text)


def _notes(hidden: dict[str, _Hidden]) -> dict[str, str]:
    return {node_id: found.text for node_id, found in hidden.items()}


_known: dict[tuple[str, bool], tuple[Node, str]] = {}
"""The line last written for a node's id, with the very node that it tells of: nodes are immutable, so the same object
has the same line, and comparing identities costs a tenth of hashing the node."""


def node_line(node: Node, *, short: bool = False) -> str:
    """Return a node in one line: id, parent, state, V, difficulty, title, best result, tries, how they ended."""
    key = (node.node_id, short)
    known = _known.get(key)
    if known is None or known[0] is not node:
        known = _known[key] = (node, _written(node, short=short))
    return known[1]


def _written(node: Node, *, short: bool) -> str:
    if node.node_id == ROOT:
        if node.best is not None:
            return f"{ROOT} | root | the initial program, {worth_text(node.best.credit, node.best.speedup)}"
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
    if best is None or best.credit is None:
        return "best: correct, not timed"
    if best.speedup is None:
        return f"best {worth_text(best.credit, None)}"
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


class _Hidden(msgspec.Struct):
    """What is counted instead of shown."""

    states: Counter[str]
    best: Node | None = None
    text: str = ""
    """The line, once everything is counted."""

    def take(self, node: Node) -> None:
        """Count one more node."""
        self.states[_state(node)] += 1
        has_credit = node.best is not None and node.best.credit is not None
        if has_credit and (self.best is None or _credit(node) > _credit(self.best)):
            self.best = node

    def line(self, where: str) -> str:
        """Return the count as a line."""
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        shown = f"; best {self.best.node_id}: {_credit(self.best):.2f}" if self.best else ""
        return f"({self.states.total()} more {where}: {counts}{shown})"


def _fold(nodes: list[Node], lines: dict[str, str], excess: int, protected: set[str]) -> dict[str, _Hidden]:
    """Replace settled subtrees by counts, deepest and oldest first, until `excess` characters are gone.

    Returns:
        The counts, by the node under which they stand.
    """
    settled = _settled(nodes, protected)
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        if node.node_id in settled and node.parent_id not in settled:
            groups.setdefault(node.parent_id, []).append(node)
    by_id = {node.node_id: node for node in nodes}
    hidden: dict[str, _Hidden] = {}
    for parent_id, tops in sorted(groups.items(), key=lambda group: (-group[1][0].depth, _age(group[1]))):
        if excess <= 0:
            break
        found = _Hidden(states=Counter())
        for node in _with_all_below(tops, by_id):
            found.take(node)
            excess -= len(lines.pop(node.node_id)) + 1
        found.text = found.line(f"below {parent_id}")
        hidden[parent_id] = found
        excess += len(found.text) + 1
    return hidden


def _settled(nodes: list[Node], protected: set[str]) -> set[str]:
    """Return the ids of nodes at and under which nothing is open, in flight or spoken of."""
    alive: set[str] = set()
    for node in reversed(nodes):  # children have larger ids than parents
        if node.node_id in alive or node.state in {"open", "in_flight"} or node.node_id in protected:
            alive |= {node.node_id, node.parent_id}
    return {node.node_id for node in nodes} - alive


def _credit(node: Node) -> float:
    return node.best.credit or 0.0 if node.best else 0.0


def _age(tops: list[Node]) -> int:
    return int(tops[-1].node_id[1:])


def _with_all_below(tops: list[Node], by_id: dict[str, Node]) -> Iterator[Node]:
    waiting = list(tops)
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(by_id[child] for child in node.children)


def _leave_out(
    nodes: list[Node], lines: dict[str, str], hidden: dict[str, _Hidden], excess: int, protected: set[str]
) -> str:
    """Leave lines out, least interesting first, and count them together with what was counted below them."""
    left = _Hidden(states=Counter())
    present = [node for node in nodes if node.node_id in lines and node.node_id not in protected]
    for node in sorted(present, key=_interest):
        if excess <= -_NOTE_CHARS:
            break
        excess -= len(lines.pop(node.node_id)) + 1
        left.take(node)
        below = hidden.pop(node.node_id, None)
        if below is not None:
            excess -= len(below.text) + 1
            left.states.update(below.states)
    return left.line("nodes") if left.states else ""


_NOTE_CHARS = 120
"""Room for the line that counts what was left out."""


def _interest(node: Node) -> tuple[int, float, int]:
    """Rank lines: what is done with, then open nodes by V, then nodes in flight; among equals the newer is kept."""
    rank = {"pruned": 0, "closed": 1, "open": 2, "in_flight": 3}[node.state]
    return rank, node.priority if node.state == "open" else _credit(node), int(node.node_id[1:])
