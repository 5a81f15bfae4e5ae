"""Selects the open node to refine next, from the model's V and from evidence.

With rule `spread`, the score of a frontier node is the sum of:

- belief: `V * failure_decay ** failures`
- evidence: `evidence * clip(ln(parent / incumbent), -1, 0)`
- exploration: `exploration * sqrt(ln(1 + rounds) / (1 + parent's rounds))` (UCB1: Auer et al. 2002)
- difficulty: `- difficulty * (difficulty - 1)`
- load: `- virtual_loss * load`, where the load is the branches in flight below the node's ancestors, halved with each
  generation (Chaslot et al. 2008)
- steering: a person's boost; a pinned node always comes first

Rule `paper` is K-Search's: the largest belief plus boost; ties go to the simpler, then to the older node.

A gain is a factor over the candidate that an action built on. Expectations are those at the branch's start. Scored
candidates have no gains.
"""

from __future__ import annotations

import math

import msgspec

from actors.planner.core.state import Node, Score, SearchState, active, frontier, live_parent, number_of, worth
from messages.base import ROOT
from messages.verdicts import Interval


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate's speedup over its base."""

    gain: float
    interval: Interval
    """Combines both intervals: it contains the true gain whenever they contain the true speedups."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The record of expected against measured gains."""

    count: int = 0
    mean_ratio: float | None = None
    """Geometric mean of measured gain / expected gain."""
    reached: int = 0
    """Actions with a gain interval that reaches the expectation."""
    failed: int = 0
    """Actions with an expectation but no correct candidate after a branch."""


def gain_of(best: Score | None, base: Score | None) -> Gain | None:
    """Return the gain of a candidate over its base (None for the reference); None unless both were timed."""
    if best is None or not best.speedup or not best.credit:
        return None
    speedup, low, high = (1.0, 1.0, 1.0) if base is None else (base.speedup, base.credit, base.speedup_high)
    if not speedup or not low:
        return None
    return Gain(
        gain=best.speedup / speedup,
        interval=Interval(low=best.credit / (high or speedup), high=(best.speedup_high or best.speedup) / low),
    )


def calibration(state: SearchState) -> Calibration:
    """Return the calibration over all nodes."""
    ratios: list[float] = []
    reached = failed = 0
    for node in state.nodes.values():
        expected = node.expected_then
        if expected is None:
            continue
        found = None if state.scored else gain_of(node.best, node.base)
        if found is not None:
            ratios.append(math.log(found.gain / expected))
            reached += found.interval.high >= expected
        elif node.best is None and node.failures:
            failed += 1
    mean = math.exp(math.fsum(ratios) / len(ratios)) if ratios else None
    return Calibration(count=len(ratios), mean_ratio=mean, reached=reached, failed=failed)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a frontier node's score."""

    belief: float
    evidence: float = 0.0
    exploration: float = 0.0
    difficulty: float = 0.0
    load: float = 0.0
    steering: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the terms: the node's score."""
        return self.belief + self.evidence + self.exploration + self.difficulty + self.load + self.steering


def select(state: SearchState) -> Node | None:
    """Return the node to refine next; None if the frontier is empty."""
    candidates = frontier(state)
    if pinned := [node for node in candidates if node.pinned]:
        return min(pinned, key=lambda node: node.pinned)
    easy = [node for node in candidates if node.difficulty <= state.settings.max_difficulty]
    scored = score(state, easy or candidates)
    return min(scored, key=_merit)[0] if scored else None


def ranking(state: SearchState) -> list[tuple[Node, Terms]]:
    """Return the frontier nodes with the terms of their scores, in order of choice."""
    limit = state.settings.max_difficulty

    def place(pair: tuple[Node, Terms]) -> tuple[float, ...]:
        node = pair[0]
        return (node.pinned or math.inf, node.difficulty > limit and not node.pinned, *_merit(pair))

    return sorted(score(state, frontier(state)), key=place)


def _merit(pair: tuple[Node, Terms]) -> tuple[float, ...]:
    node, terms = pair
    return -terms.total, node.difficulty, number_of(node.node_id)


def score(state: SearchState, nodes: list[Node]) -> list[tuple[Node, Terms]]:
    """Return each node with the terms of its score."""
    if not spreads(state):
        return [(node, Terms(belief=belief(state, node), steering=node.boost)) for node in nodes]
    places = _Places(state)
    step = state.settings.selection.difficulty
    scored = []
    for node in nodes:
        place = places.under(live_parent(state, state.node(node.parent_id)).node_id)
        terms = Terms(
            belief=belief(state, node),
            evidence=place.evidence,
            exploration=place.exploration,
            difficulty=_plain(-step * (node.difficulty - 1)),
            load=place.load,
            steering=node.boost,
        )
        scored.append((node, terms))
    return scored


def spreads(state: SearchState) -> bool:
    """Return True if the rule `spread` is in force."""
    rule = state.settings.selection.rule
    return rule == "spread" or (rule == "auto" and state.settings.branches > 1)


def belief(state: SearchState, node: Node) -> float:
    """Return V discounted by the node's failures."""
    return float(node.priority * state.settings.selection.failure_decay**node.failures)


def distance(state: SearchState, credit: float) -> float:
    """Return how far a credit is below the incumbent's: a log ratio of speedups, or a share of the score gained."""
    if state.incumbent is None:
        return 0.0
    best = state.incumbent.credit
    if not state.scored:
        return math.log(max(credit, 1e-3) / max(best, 1.0))
    gain = best - worth(state.node(ROOT))
    return (credit - best) / gain if gain > 0 else 0.0


class _Places:
    """The terms that siblings share, computed once per parent."""

    def __init__(self, state: SearchState) -> None:
        self._state = state
        self._weights = state.settings.selection
        self._known: dict[str, Terms] = {}
        self._near: dict[str, float] = {"": 0.0}
        self._in_flight: dict[str, float] = {}
        """Branches in flight on a node's children, divided by the slots so that the penalty does not grow with them."""
        for branch in active(state):
            parent_id = state.node(branch.node_id).parent_id
            self._in_flight[parent_id] = self._in_flight.get(parent_id, 0.0) + 1.0 / state.settings.branches

    def under(self, parent_id: str) -> Terms:
        if parent_id not in self._known:
            self._known[parent_id] = self._terms(self._state.node(parent_id))
        return self._known[parent_id]

    def _terms(self, parent: Node) -> Terms:
        behind = distance(self._state, worth(parent))
        tried = math.sqrt(math.log1p(self._state.rounds) / (1 + parent.child_rounds))
        return Terms(
            belief=0.0,
            evidence=_plain(self._weights.evidence * min(0.0, max(-1.0, behind))),
            exploration=self._weights.exploration * tried,
            load=_plain(-self._weights.virtual_loss * self._load(parent)),
        )

    def _load(self, node: Node) -> float:
        """Sum the branches in flight below the node and its ancestors, halved with each generation."""
        path = [node]
        while path[-1].parent_id and path[-1].parent_id not in self._near:
            path.append(self._state.node(path[-1].parent_id))
        for above in reversed(path):
            if above.node_id not in self._near:
                inherited = 0.5 * self._near.get(above.parent_id, 0.0)
                self._near[above.node_id] = self._in_flight.get(above.node_id, 0.0) + inherited
        return self._near[node.node_id]


def _plain(part: float) -> float:
    """Return a term of a score with -0.0 replaced by 0.0."""
    return part + 0.0
