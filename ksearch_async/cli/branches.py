"""The part of the search tree that a frame of the live view shows, one line per node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from actors.planner.core.state import Node, Score, SearchState
from ksearch_async.cli.moment import Moment, work_words
from ksearch_async.phrases import plain
from ksearch_async.progress import chosen_nodes
from messages.base import ROOT
from messages.verdicts import CORRECT_FATES, NO_FAILURES, score_text, worth_text

_NARROWEST_TITLE = 12


def branch_lines(moment: Moment, rows: int) -> list[Text]:
    """Return the lines of the nodes that fit, their standing in a column of its own."""
    nodes = chosen_nodes(moment.state, rows) if rows > 0 else []
    if not nodes:
        return []
    results = _results(moment, nodes)
    standings = [_standing(moment, node, results.get(node.node_id)) for node in nodes]
    right = min(max(standing.cell_len for standing in standings), moment.width // 2)
    marks = _marks(moment.state)
    edges = _edges(nodes, moment.width)
    heads = [_head(node, edge, marks.get(node.node_id, "")) for node, edge in zip(nodes, edges, strict=True)]
    left = min(max(head.cell_len for head in heads), max(_NARROWEST_TITLE, moment.width - right - 2))
    for head in heads:
        head.truncate(left, overflow="ellipsis", pad=True)
    return [Text.assemble(head, "  ", standing) for head, standing in zip(heads, standings, strict=True)]


def _head(node: Node, edge: str, mark: str) -> Text:
    style = "bold" if mark else "dim" if node.state == "pruned" else ""
    star = f"{mark} " if mark else ""
    return Text.assemble((edge, "dim"), f"{node.node_id} ", (star, "yellow"), (plain(node.title), style))


def _marks(state: SearchState) -> dict[str, str]:
    """Return the star of the best node, and the hollow ones of those above it."""
    if state.incumbent is None:
        return {}
    marks, node = {state.incumbent.node_id: "★"}, state.node(state.incumbent.node_id)
    while (node := state.node(node.parent_id)).node_id != ROOT:
        marks[node.node_id] = "☆"
    return marks


def _edges(nodes: Sequence[Node], width: int) -> Iterator[str]:
    """Yield what joins each node to its parent; deep trees are drawn narrower."""
    deepest = max(node.depth for node in nodes)
    tee, corner, line, blank = ("├─ ", "└─ ", "│  ", "   ") if deepest * 3 <= width // 3 else ("├", "└", "│", " ")
    last = {node.parent_id: node.node_id for node in nodes}
    below: dict[str, str] = {}
    for node in nodes:
        lead = below.get(node.parent_id, "")
        is_last = last[node.parent_id] == node.node_id
        below[node.node_id] = lead + (blank if is_last else line)
        yield lead + (corner if is_last else tee)


def _results(moment: Moment, nodes: Sequence[Node]) -> dict[str, Score]:
    """Return the best correct candidate of each node that has one, of the branches at work on it too."""
    found = {node.node_id: node.best for node in nodes if node.best is not None}
    for branch in moment.state.branches.values():
        known = found.get(branch.node_id)
        if branch.best is not None and (known is None or (branch.best.credit or 0.0) > (known.credit or 0.0)):
            found[branch.node_id] = branch.best
    return found


def _standing(moment: Moment, node: Node, result: Score | None) -> Text:
    """Say what is being done for a node, or what came of it."""
    parts = [_result(result)] if result is not None else []
    works = moment.in_flight.get(node.node_id, [])
    if works:
        more = f" +{len(works) - 1}" if len(works) > 1 else ""
        parts.append((work_words(works[0]) + more, "cyan"))
        if moment.is_wide:
            parts.append((f"V {node.priority:.2f}", "dim"))
    elif node.state == "pruned":
        parts.append(("pruned", "dim"))
    elif node.state == "open":
        parts.append((f"open, V {node.priority:.2f}", "dim"))
    if failed := _failures(node):
        parts.append((f"{failed} failed", "red"))
    return Text.assemble(*(piece for at, part in enumerate(parts) for piece in ((", ", part) if at else (part,))))


def _failures(node: Node) -> int:
    """Count failed attempts; a correct candidate is none, nor is a coder that sees nothing further."""
    return sum(count for fate, count in node.fates if fate not in NO_FAILURES | CORRECT_FATES)


def _result(score: Score) -> tuple[str, str]:
    if score.speedup is None:
        return ("correct" if score.credit is None else score_text(score.credit), "")
    worth = worth_text(score.credit, score.speedup, is_least=score.is_least)
    return (worth, "green" if (score.credit or 0.0) > 1.0 else "")
