"""`ksearch tree RUN --why`: the frontier with the parts of each node's score, in the order of choice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from actors.planner.core.selection import Terms, ranking, spreads
from actors.planner.core.state import Node, SearchState
from ksearch_async.cli.tables import Column, table_lines

_LEAST_TITLE = 12
"""Characters of a title that are shown before parts of the score give way: they are what was asked for."""


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """A frontier node and why it stands where it does; see `actors/planner/core/selection.py` for the parts."""

    node: str
    parent: str
    title: str
    total: float
    belief: float
    """V, lowered by failures."""
    evidence: float
    """How near its parent's result is to the best."""
    exploration: float
    """How little was tried below its parent."""
    difficulty: float
    load: float
    """Branches at work close by."""
    steering: float
    """What a person added."""
    pinned: bool
    """A person wants it next."""
    too_hard: bool
    """Above the run's largest difficulty: it waits until nothing easier is open."""


def scored_frontier(state: SearchState) -> list[Scored]:
    """Return the frontier, what would be chosen next first."""
    return [_scored(state, node, terms) for node, terms in ranking(state)]


def _scored(state: SearchState, node: Node, terms: Terms) -> Scored:
    return Scored(
        node=node.node_id,
        parent=node.parent_id,
        title=node.title,
        total=terms.total,
        belief=terms.belief,
        evidence=terms.evidence,
        exploration=terms.exploration,
        difficulty=terms.difficulty,
        load=terms.load,
        steering=terms.steering,
        pinned=node.pinned > 0,
        too_hard=node.difficulty > state.settings.max_difficulty and not node.pinned,
    )


def why_lines(state: SearchState, *, width: int | None) -> Iterator[str]:
    """Yield a table of the frontier; nothing if it is empty.

    Args:
        state: the search.
        width: columns of the terminal; null: as many as it takes.
    """
    found = scored_frontier(state)
    if not found:
        return
    spread = spreads(state)
    yield f"rule {'spread' if spread else 'paper'}: the first is chosen next"
    parts = [
        Column("score", number=True),
        Column("belief", number=True, rank=1),
        *(Column(name, number=True, rank=2) for name in ("evidence", "explore", "hard", "load") if spread),
        Column("person", number=True, rank=1),
    ]
    yield from table_lines(
        [Column("node"), *parts, Column("action", least=_LEAST_TITLE)],
        [_row(each, spread) for each in found],
        width=width,
    )


def _row(each: Scored, spread: bool) -> list[str]:
    shared = [each.evidence, each.exploration, each.difficulty, each.load] if spread else []
    parts = [f"{part:+.3f}" for part in (each.belief, *shared, each.steering)]
    mark = "pinned: " if each.pinned else "too hard for now: " if each.too_hard else ""
    return [each.node, f"{each.total:.3f}", *parts, mark + " ".join(each.title.split())]


def waiting_line(state: SearchState) -> str:
    """Count the open nodes that are not on the frontier, by why; empty if all are."""
    counts = Counter(
        "forbidden" if node.barred else "below a node that has no correct candidate"
        for node in state.nodes.values()
        if node.state == "open" and node.node_id not in state.frontier_ids
    )
    return "; ".join(f"{count} open, {why}" for why, count in counts.items())
