"""A scripted planner's model: opinions on techniques and pairs, wrong by a stated noise, revised by what it is told.

It knows what a language model in its place can know: the tree, what the best program of each node is made of, and what
was measured. It has read of some of the pairs that pay together, and of as many that do not.
"""

from __future__ import annotations

import math
import random

import msgspec

from actors.planner.core.state import Node, Report, SearchState, frontier, in_order
from messages.edits import Edit, EditScript, Insert, Prune, Update
from messages.facts import PlanRequested
from tests.landscape.landscape import PAIR_GAIN, TECHNIQUES, Landscape, Program, family, with_technique

BELIEF_NOISE = 0.20
"""Spread of its opinions around the truth, of techniques and of pairs."""
KNOWN_PAIRS = 0.35
"""Share of the true pairs that it has read of; it has read of as many untrue ones."""
OBSERVATION_NOISE = 0.10
"""Spread that it ascribes to one measured gain: tuning, and what it does not know of."""
PROPOSAL_NOISE = 0.08
"""Spread that is added to the worth of each idea when it makes proposals."""
FORESIGHT = 0.5
"""Weight of what an idea makes possible, against what it brings at once."""
PRUNE_BELOW = -0.30
UPDATE_FROM = 0.10
"""Change of V that is worth an edit."""
SCALE = 0.30
"""Of the logistic function that makes V of an expected logarithm."""


class _Belief(msgspec.Struct):
    mean: float
    variance: float


class Planner:
    """Answers calls for edits."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._draw = draw = random.Random(f"planner {seed}")
        spread = BELIEF_NOISE**2
        self._alone = [_Belief(effect + draw.gauss(0.0, BELIEF_NOISE), spread) for effect in landscape.effects]
        known = [pair for pair in landscape.pairs if draw.random() < KNOWN_PAIRS]
        self._pairs = {pair: _Belief(landscape.pairs[pair] + draw.gauss(0.0, BELIEF_NOISE), spread) for pair in known}
        for _ in known:
            a, b = sorted(draw.sample(range(TECHNIQUES), 2))
            if family(a) != family(b) and (a, b) not in landscape.pairs:
                self._pairs[a, b] = _Belief(draw.uniform(*PAIR_GAIN), spread)
        self._told: set[str] = set()
        self._ease = [_Belief(0.6, 0.04) for _ in range(TECHNIQUES)]

    def edits(self, state: SearchState, asked: PlanRequested, programs: dict[str, Program]) -> EditScript:
        """Return a script for the tree as it was when the call was made.

        Args:
            state: the search at the time of asking.
            asked: which branches are told of, and how many actions are wanted.
            programs: what candidates are made of, by id.
        """
        for report in state.reports:
            if report.branch_id in asked.branch_ids and report.branch_id not in self._told:
                self._told.add(report.branch_id)
                self._learn(state, report, programs)
        revisions = self._revisions(state, programs) if asked.purpose == "revise" else []
        return EditScript(edits=(*revisions, *self._proposals(state, asked.wanted, programs)))

    def _learn(self, state: SearchState, report: Report, programs: dict[str, Program]) -> None:
        technique = technique_of(state.node(report.node_id))
        if technique is None:
            return
        worked = report.best is not None
        ease = self._ease[technique]
        ease.mean += 0.3 * (worked - ease.mean)
        if report.best is None or report.best.speedup is None:
            return
        base = programs[report.base.candidate_id] if report.base else Program(frozenset(), 0.0, 0)
        gained = math.log(report.best.speedup) - math.log((report.base.speedup if report.base else None) or 1.0)
        parts = self._parts(technique, base.techniques)
        surprise = gained - sum(part.mean for part in parts)
        total = sum(part.variance for part in parts) + OBSERVATION_NOISE**2
        for part in parts:
            share = part.variance / total
            part.mean += share * surprise
            part.variance *= 1 - share

    def _parts(self, technique: int, base: frozenset[int]) -> list[_Belief]:
        """Return the opinions from which the gain of adding a technique is made up."""
        pairs = [
            belief for pair, belief in self._pairs.items() if technique in pair and set(pair) - {technique} <= base
        ]
        return [self._alone[technique], *pairs]

    def _gain(self, technique: int, base: frozenset[int]) -> float:
        replaced = [other for other in base if family(other) == family(technique)]
        rest = base.difference(replaced)
        lost = sum(part.mean for other in replaced for part in self._parts(other, rest))
        return sum(part.mean for part in self._parts(technique, base)) - lost

    def _worth(self, technique: int, base: frozenset[int]) -> float:
        """Return what an idea is expected to bring, at once and later."""
        after = with_technique(base, technique)
        later = [
            belief.mean + self._alone[partner].mean
            for pair, belief in self._pairs.items()
            if technique in pair and (partner := next(iter(set(pair) - {technique}))) not in after
        ]
        return self._gain(technique, base) + FORESIGHT * max(0.0, max(later, default=0.0))

    def _proposals(self, state: SearchState, wanted: int, programs: dict[str, Program]) -> list[Edit]:
        best = math.log(state.incumbent.speedup or 1.0) if state.incumbent else 0.0
        ideas: list[tuple[float, Node, int]] = []
        for node in in_order(state.nodes):
            if node.state != "closed" or node.spent:
                continue
            base = programs[node.best.candidate_id].techniques if node.best else frozenset()
            height = math.log((node.best.speedup if node.best else None) or 1.0) - best
            tried = {technique_of(state.node(child)) for child in node.children}
            ideas += [
                (height + self._worth(technique, base) + self._draw.gauss(0.0, PROPOSAL_NOISE), node, technique)
                for technique in range(TECHNIQUES)
                if technique not in base and technique not in tried
            ]
        ideas.sort(key=lambda idea: -idea[0])
        return [
            Insert(
                parent=node.node_id,
                title=title_of(technique),
                description="",
                difficulty=self._difficulty(technique),
                priority=_priority(worth),
            )
            for worth, node, technique in ideas[:wanted]
        ]

    def _revisions(self, state: SearchState, programs: dict[str, Program]) -> list[Edit]:
        best = math.log(state.incumbent.speedup or 1.0) if state.incumbent else 0.0
        edits: list[Edit] = []
        for node in frontier(state):
            technique = technique_of(node)
            if technique is None:
                continue
            parent = state.node(node.parent_id)
            base = programs[parent.best.candidate_id].techniques if parent.best else frozenset()
            worth = self._worth(technique, base)
            height = math.log((parent.best.speedup if parent.best else None) or 1.0) - best
            value = _priority(height + worth)
            if worth < PRUNE_BELOW:
                edits.append(Prune(node=node.node_id, reason="expected to cost more than it can bring"))
            elif abs(value - node.priority) > UPDATE_FROM:
                edits.append(Update(node=node.node_id, priority=value))
        return edits

    def _difficulty(self, technique: int) -> int:
        return min(5, max(1, 1 + round(4 * (1 - self._ease[technique].mean))))


def title_of(technique: int) -> str:
    """Return an action's title."""
    return f"Technique {technique:02}"


def technique_of(node: Node) -> int | None:
    """Return what an action is about; None for those of the machine."""
    return int(node.title[-2:]) if node.origin == "model" and node.title.startswith("Technique") else None


def _priority(worth: float) -> float:
    return round(1 / (1 + math.exp(-worth / SCALE)), 2)
