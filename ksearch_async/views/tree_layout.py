"""The layout of a run's tree, for the terminal, the live view and the report. Pure.

`★` is the best kernel's node, `☆` marks the nodes above it, on which the best kernel was built.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import nlargest, nsmallest
from itertools import zip_longest

import msgspec

from actors.planner.core.state import Node, SearchState, ancestors, frontier, number_of, with_all_below
from ksearch_async.views.text import columns_of, fitted, plain, shortened
from messages.base import ROOT
from messages.verdicts import NO_FAILURES, worth_text

_NARROWEST_TITLE = 16
_EDGES = (("├── ", "└── ", "│   ", "    "), ("├ ", "└ ", "│ ", "  "))
"""Edges of trees with enough space, and of deep trees in little space: branch, last branch, line, blank."""
_MANY = 10
"""Trees with more nodes than this multiple of those that can be shown are examined less closely."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a drawn tree."""

    node: Node
    parent: int | None
    """Row of its parent."""
    lasts: tuple[bool, ...]
    """For it and the nodes above it but the root, the uppermost first: True if it is its parent's last child."""
    hidden: int
    """Number of its children that are left out."""

    def edge(self, glyphs: tuple[str, str, str, str]) -> str:
        """Return the edge that joins it to its parent: branch, last branch, line and blank."""
        tee, corner, line, blank = glyphs
        above = "".join(blank if is_last else line for is_last in self.lasts[:-1])
        return above + ((corner if self.lasts[-1] else tee) if self.lasts else "")


def rows_of(state: SearchState, *, shown: Container[str] | None = None, depth: int | None = None) -> list[Row]:
    """Return the rows of a tree, parents before children, in order of insertion.

    Args:
        state: the search, which has nodes.
        shown: the nodes below the root that are drawn, with those above each; None: all.
        depth: levels below the root that are drawn; None: all.
    """
    rows: list[Row] = []
    waiting: list[tuple[str, int | None, tuple[bool, ...]]] = [(ROOT, None, ())]
    while waiting:
        node_id, parent, lasts = waiting.pop()
        node, place = state.node(node_id), len(rows)
        is_cut = depth is not None and node.depth >= depth
        below = [] if is_cut else [child for child in node.children if shown is None or child in shown]
        rows.append(Row(node=node, parent=parent, lasts=lasts, hidden=len(node.children) - len(below)))
        waiting.extend((child, place, (*lasts, child == below[-1])) for child in reversed(below))
    return rows


def kept(state: SearchState, candidates: Iterable[Node], most: int) -> set[str]:
    """Return as many nodes as may be shown, the first candidates first, each with all nodes above it but the root."""
    chosen: set[str] = set()
    for node in candidates:
        chain = {link.node_id for link in (node, *ancestors(state, node))} - {ROOT}
        if len(chosen | chain) <= most:
            chosen |= chain
        if len(chosen) == most:
            break
    return chosen


def chosen_rows(state: SearchState, most: int) -> list[Row]:
    """Return the rows of a tree for this number of lines, without the root.

    Nodes in flight and the path to the best come first, then by turns the best open and the best closed nodes.
    """
    return rows_of(state, shown=kept(state, _by_interest(state, most), most))[1:] if state.nodes else []


def path_to_best(state: SearchState) -> tuple[str, ...]:
    """Return the nodes that the best kernel was built on, from the root's child to its own; empty without a best."""
    node = state.nodes.get(state.incumbent.node_id) if state.incumbent else None
    if node is None:
        return ()
    return tuple(each.node_id for each in reversed([node, *ancestors(state, node)]) if each.node_id != ROOT)


def marks_of(state: SearchState) -> dict[str, str]:
    """Return the star of the best node, and the hollow stars of the nodes above it."""
    path = path_to_best(state)
    return {**dict.fromkeys(path, "☆"), **dict.fromkeys(path[-1:], "★")}


def tree_lines(
    state: SearchState, *, width: int | None = None, depth: int | None = None, at_work: bool = True
) -> Iterator[str]:
    """Yield one line per node.

    Args:
        state: the search, with or without nodes.
        width: columns of a line; None: no limit. Titles are shortened first, then failures.
        depth: levels below the root that are drawn; deeper nodes are counted.
        at_work: a process works on the run.
    """
    rows = rows_of(state, depth=depth) if state.nodes else []
    deepest = max((row.node.depth for row in rows), default=0)
    glyphs = _EDGES[width is not None and deepest * len(_EDGES[0][0]) > width // 3]
    marks = marks_of(state)
    for row in rows:
        count = sum(1 for _ in with_all_below(state, row.node)) - 1 if row.hidden else 0
        below = f" (+{count} below)" if count else ""
        mark = f"{marks[row.node.node_id]} " if row.node.node_id in marks else ""
        if row.parent is None:
            best = row.node.best
            yield f"{ROOT} {f'initial program  [{worth_text(best.credit, None)}]' if best else 'reference'}{below}"
        else:
            head = f"{row.edge(glyphs)}{row.node.node_id} {mark}"
            yield _fitted(head, row.node, _standing(state, row.node, at_work=at_work), below, width)


def _fitted(head: str, node: Node, said: list[str], below: str, width: int | None) -> str:
    failed = [f"{count} {fate.replace('_', ' ')}" for fate, count in node.fates if fate not in NO_FAILURES]
    if width is None:
        return f"{head}{' '.join(node.title.split())}  [{', '.join([*said, *failed])}]{below}"
    tails = [f"  [{', '.join(words)}]{below}" for words in ([*said, *failed], said, said[:1])]
    for tail in (*tails, f"  [{said[0]}]"):
        room = width - len(head) - len(tail)
        if room >= min(_NARROWEST_TITLE, columns_of(node.title)):
            return head + shortened(node.title, room) + tail
    return fitted(f"{head}{plain(node.title)}", width)


def state_word(node: Node, *, at_work: bool) -> str:
    """Return the state of a node in a word.

    Args:
        node: any but the root.
        at_work: a process works on the run; otherwise nodes in flight are interrupted.
    """
    if node.spent:
        return "spent"
    return "cut off" if node.state == "in_flight" and not at_work else node.state.replace("_", " ")


def _standing(state: SearchState, node: Node, *, at_work: bool) -> list[str]:
    words = [state_word(node, at_work=at_work), f"V {node.priority:.2f}"]
    if node.barred:
        words.append("forbidden")
    else:
        words += ["pinned"] if node.pinned else []
        words += [f"{node.boost:+.2f} by a person"] if node.boost else []
    incumbent = state.incumbent
    if incumbent is not None and incumbent.node_id == node.node_id:  # attached to its node when its branch ends
        return [worth_text(incumbent.credit, incumbent.speedup), *words]
    if node.best is not None:
        return [worth_text(node.best.credit, node.best.speedup, is_least=node.best.is_least), *words]
    return words


def _by_interest(state: SearchState, rows: int) -> Iterator[Node]:
    """Yield nodes that deserve a row, for any reason; some more than once."""
    if state.incumbent is not None:
        yield state.node(state.incumbent.node_id)
    working = {branch.node_id for branch in state.branches.values()}
    yield from (state.node(node_id) for node_id in sorted(working, key=number_of))
    waiting = nsmallest(rows, frontier(state), key=lambda node: -node.priority)
    closed = (node for node in state.nodes.values() if node.state == "closed" and node.node_id != ROOT)
    by_turns = zip_longest(waiting, nlargest(rows, closed, key=_worth))
    yield from (node for pair in by_turns for node in pair if node is not None)
    if len(state.nodes) > _MANY * rows:
        return  # the frontier and what is closed fill the rows
    others = (node for node in state.nodes.values() if node.state in ("open", "pruned"))
    yield from nsmallest(rows, others, key=lambda node: (node.state == "pruned", number_of(node.node_id)))


def _worth(node: Node) -> tuple[float, int]:
    return (node.best.speedup or 0.0 if node.best else 0.0, number_of(node.node_id))
