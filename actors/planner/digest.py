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

from actors.planner.core.beliefs import gain_of
from actors.planner.core.state import Node, Snapshot, in_order
from messages.base import ROOT
from messages.verdicts import worth_text

_RECENT = 64
"""The last nodes inserted keep their whole titles."""
_SHORT_TITLE = 32


_written_whole: list[tuple[Snapshot, int, str]] = []
"""Texts of the last snapshots: each is told again in every prompt until the next one."""
_SNAPSHOTS_KEPT = 8


def snapshot_digest(snapshot: Snapshot, *, budget_bytes: int) -> str:
    """Return the lines of the tree as it was when the snapshot was taken; the same text whenever it is asked for."""
    for kept, budget, text in _written_whole:
        if kept is snapshot and budget == budget_bytes:
            return text
    shown = {snapshot.incumbent_id} if snapshot.incumbent_id else set()
    text = tree_digest(in_order(snapshot.nodes), budget_bytes=budget_bytes, shown=shown)
    _written_whole.insert(0, (snapshot, budget_bytes, text))
    del _written_whole[_SNAPSHOTS_KEPT:]
    return text


def tree_digest(nodes: list[Node], *, budget_bytes: int, shown: Iterable[str] = ()) -> str:
    """Return the tree's lines.

    Args:
        nodes: all of them, in order of insertion.
        budget_bytes: about how long the text may be, as UTF-8.
        shown: ids of nodes that give way last, besides the root.
    """
    lines = {node.node_id: node_line(node) for node in nodes}
    size = _size(lines)
    if size <= budget_bytes:
        return "\n".join(lines.values())
    size = _shorten(nodes, lines, size)
    protected = {ROOT, *shown}
    hidden: dict[str, _Hidden] = {}
    left_out = ""
    if size > budget_bytes:
        hidden = _fold(nodes, lines, size - budget_bytes, protected)
        size = _size(lines) + _size(_notes(hidden))
    if size > budget_bytes:
        left_out = _leave_out(nodes, lines, hidden, size - budget_bytes, protected)
    notes = _notes(hidden)
    text = [part for node_id, line in lines.items() for part in (line, notes.get(node_id)) if part]
    return "\n".join([*text, left_out] if left_out else text)


def _notes(hidden: dict[str, _Hidden]) -> dict[str, str]:
    return {node_id: found.text for node_id, found in hidden.items()}


_known: dict[tuple[str, bool], tuple[Node, str]] = {}
"""The line last written for a node's id, with the very node that it tells of: nodes are immutable, so the same object
has the same line, and comparing identities costs a tenth of hashing the node."""


def node_line(node: Node, *, short: bool = False) -> str:
    """Return a node in one line: id, parent, state, V, difficulty, title, expectation, best result, tries, fates.

    A node in flight is written as an open one: a line holds until something else is to be told.
    """
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
        f"{node.node_id} < {node.parent_id}{f' + {node.second_id}' if node.second_id else ''}",
        _state(node),
        f"V {node.priority:.2f}",
        f"d{node.difficulty}",
        _short(node.title) if short else node.title,
    ]
    parts += _expected(node)
    parts += _ordered(node)
    if node.earlier:
        parts.append(f"in an earlier run: {node.earlier}")
    if node.best is not None:
        parts.append(_best(node))
    if node.tries or node.rounds:
        parts.append(f"{node.tries} tries, {node.rounds} rounds")
    if node.fates:
        parts.append(", ".join(f"{fate} {count}" for fate, count in node.fates))
    return " | ".join(parts)


def _expected(node: Node) -> list[str]:
    """Say which gain is expected; of a result, what was expected when it was begun, and what came of it."""
    if node.best is None:
        return [f"expects {node.expected_gain:.2f}x"] if node.expected_gain is not None else []
    found = gain_of(node.best, node.base)
    if node.expected_then is None or found is None:
        return []
    return [f"expected {node.expected_then:.2f}x, gained {found.gain:.2f}x"]


def _ordered(node: Node) -> list[str]:
    """Say what a person ordered for a node."""
    if node.barred:
        return ["forbidden by a person" if node.forbidden is not None else "below a forbidden node"]
    own = ["a person's own"] if node.origin == "person" else []
    pinned = ["pinned by a person: comes next"] if node.pinned else []
    return [*own, *pinned, *([f"a person adds {node.boost:+.2f} to its score"] if node.boost else [])]


def _state(node: Node) -> str:
    if node.state == "pruned":
        return "given up" if node.given_up else "pruned"
    if node.state == "closed" and node.spent:
        return "spent"
    return "open" if node.state == "in_flight" else node.state


def _best(node: Node) -> str:
    best = node.best
    if best is None or best.credit is None:
        return "best: correct, not timed"
    if best.speedup is None:
        return f"best {worth_text(best.credit, None)}"
    if best.is_least:
        return f"best at least {best.speedup:.2f}x (unstable: its time could not be told)"
    return f"best {best.speedup:.2f}x (credit {best.credit:.2f})"


def _short(title: str) -> str:
    """Drop a title's last words; what is left is whole words."""
    if len(title) <= _SHORT_TITLE:
        return title
    head, _, _ = title[:_SHORT_TITLE].rpartition(" ")
    return f"{head or title[:_SHORT_TITLE]} …"


def _size(lines: dict[str, str]) -> int:
    return sum(map(_bytes, lines.values()))


def _bytes(line: str) -> int:
    """Return a line's length as UTF-8, its end included."""
    return 1 + (len(line) if line.isascii() else len(line.encode()))


def _shorten(nodes: list[Node], lines: dict[str, str], size: int) -> int:
    """Drop the tails of titles of what is done with. Returns the new size."""
    for position, node in enumerate(nodes):
        is_old = position < len(nodes) - _RECENT
        if node.state == "pruned" or (node.state == "closed" and is_old):
            line = node_line(node, short=True)
            size -= _bytes(lines[node.node_id]) - _bytes(line)
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
    """Replace settled subtrees by counts, deepest and oldest first, until `excess` bytes are gone.

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
            excess -= _bytes(lines.pop(node.node_id))
        found.text = found.line(f"below {parent_id}")
        hidden[parent_id] = found
        excess += _bytes(found.text)
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
        excess -= _bytes(lines.pop(node.node_id))
        left.take(node)
        below = hidden.pop(node.node_id, None)
        if below is not None:
            excess -= _bytes(below.text)
            left.states.update(below.states)
    return left.line("nodes") if left.states else ""


_NOTE_CHARS = 120
"""Room for the line that counts what was left out."""


def _interest(node: Node) -> tuple[int, float, int]:
    """Rank lines: what is done with, then open nodes by V, then nodes in flight; among equals the newer is kept."""
    rank = {"pruned": 0, "closed": 1, "open": 2, "in_flight": 3}[node.state]
    return rank, node.priority if node.state == "open" else _credit(node), int(node.node_id[1:])
