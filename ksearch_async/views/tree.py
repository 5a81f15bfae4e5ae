"""Draws a run's tree as lines of text. Pure: a state and a width in, lines out.

`★` is the best kernel's node, `☆` marks the nodes above it: what the best kernel was built on.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from actors.planner.core.state import Node, SearchState, ancestors
from ksearch_async.views.text import columns_of, fitted, plain, shortened
from messages.base import ROOT
from messages.verdicts import NO_FAILURES, worth_text

_NARROWEST_TITLE = 16
_SHALLOW_INDENT, _DEEP_INDENT = 4, 2
_EDGES = {_SHALLOW_INDENT: ("├── ", "└── ", "│   ", "    "), _DEEP_INDENT: ("├ ", "└ ", "│ ", "  ")}


class _Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a whole drawing."""

    state: SearchState
    marks: dict[str, str]
    width: int | None
    depth: int | None
    indent: int
    at_work: bool


def tree_lines(
    state: SearchState, *, width: int | None = None, depth: int | None = None, at_work: bool = True
) -> Iterator[str]:
    """Yield one line per node, parents before children, in order of insertion.

    Args:
        state: the search, with or without nodes.
        width: columns that a line may take; null: as many as it needs. Titles give way first, then what failed.
        depth: levels below the root that are drawn; what lies deeper is counted.
        at_work: whether anybody works on the run.
    """
    if not state.nodes:
        return
    deepest = max((node.depth for node in state.nodes.values() if depth is None or node.depth <= depth), default=0)
    roomy = width is None or deepest * _SHALLOW_INDENT <= width // 3
    indent = _SHALLOW_INDENT if roomy else _DEEP_INDENT
    sheet = _Sheet(state=state, marks=_marks(state), width=width, depth=depth, indent=indent, at_work=at_work)
    yield from _drawn(sheet)


def _marks(state: SearchState) -> dict[str, str]:
    if state.incumbent is None:
        return {}
    best = state.node(state.incumbent.node_id)
    above = {node.node_id: "☆" for node in ancestors(state, best) if node.node_id != ROOT}
    return {**above, best.node_id: "★"}


def _drawn(sheet: _Sheet) -> Iterator[str]:
    tee, corner, line, blank = _EDGES[sheet.indent]
    waiting = [(ROOT, "", "")]
    while waiting:
        node_id, lead, below = waiting.pop()
        node = sheet.state.node(node_id)
        hidden = sheet.depth is not None and node.depth >= sheet.depth
        yield _fitted(sheet, node, lead, _count_below(sheet.state, node) if hidden else 0)
        for child in () if hidden else reversed(node.children):
            last = child == node.children[-1]
            waiting.append((child, below + (corner if last else tee), below + (blank if last else line)))


def _fitted(sheet: _Sheet, node: Node, lead: str, hidden: int) -> str:
    """Return the node's line, with as much of it as the width allows."""
    below = f" (+{hidden} below)" if hidden else ""
    if node.node_id == ROOT:
        worth = f"initial program  [{worth_text(node.best.credit, None)}]" if node.best else "reference"
        return f"{ROOT} {worth}{below}"
    head = f"{lead}{node.node_id} {mark} " if (mark := sheet.marks.get(node.node_id)) else f"{lead}{node.node_id} "
    said, failed = _standing(sheet, node), _failures(node)
    if sheet.width is None:
        return f"{head}{' '.join(node.title.split())}  [{', '.join([*said, *failed])}]{below}"
    tails = [f"  [{', '.join(words)}]{below}" for words in ([*said, *failed], said, said[:1])]
    for tail in (*tails, f"  [{said[0]}]"):
        room = sheet.width - len(head) - len(tail)
        if room >= min(_NARROWEST_TITLE, columns_of(node.title)):
            return head + shortened(node.title, room) + tail
    return fitted(f"{head}{plain(node.title)}", sheet.width)


def state_word(node: Node, *, at_work: bool) -> str:
    """Say how a node stands.

    Args:
        node: any but the root.
        at_work: whether anybody works on the run; if not, what was in flight at its end is cut off.
    """
    if node.spent:
        return "spent"
    return "cut off" if node.state == "in_flight" and not at_work else node.state.replace("_", " ")


def _standing(sheet: _Sheet, node: Node) -> list[str]:
    """Say its result first: that is kept where there is room for one word only."""
    words = [state_word(node, at_work=sheet.at_work), f"V {node.priority:.2f}", *_ordered(node)]
    incumbent = sheet.state.incumbent
    if incumbent is not None and incumbent.node_id == node.node_id:  # attached to its node when its branch ends
        return [worth_text(incumbent.credit, incumbent.speedup), *words]
    if node.best is not None:
        return [worth_text(node.best.credit, node.best.speedup, is_least=node.best.is_least), *words]
    return words


def _ordered(node: Node) -> list[str]:
    """Say what a person ordered for a node."""
    if node.barred:
        return ["forbidden"]
    return [*(["pinned"] if node.pinned else []), *([f"{node.boost:+.2f} by a person"] if node.boost else [])]


def _failures(node: Node) -> list[str]:
    return [f"{count} {fate.replace('_', ' ')}" for fate, count in node.fates if fate not in NO_FAILURES]


def _count_below(state: SearchState, node: Node) -> int:
    count, waiting = 0, list(node.children)
    while waiting:
        count += 1
        waiting.extend(state.node(waiting.pop()).children)
    return count
