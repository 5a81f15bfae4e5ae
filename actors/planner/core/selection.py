"""Which open node is refined next: decided by the machine, from the model's V and from evidence.

The score of a frontier node, rule `spread`:

    V * failure_decay ** failures                                what the model believes, after failures
    + evidence    * clip(ln(parent / incumbent), -1, 0)          a parent near the best is worth more
    + exploration * sqrt(ln(1 + rounds) / (1 + parent's rounds)) little tried parents (UCB1: Auer et al. 2002)
    - difficulty  * (difficulty - 1)                             ties go to the simpler
    - virtual_loss * load                                        branches in flight close by (Chaslot et al. 2008)

where `load` sums, over the node's ancestors, the branches in flight below them, halved with each generation.
Rule `paper` is K-Search's: the largest V (after failures), ties to the simpler, then to the older.
"""

from __future__ import annotations

import math

import msgspec

from actors.planner.core.state import Node, SearchState, active, number_of
from actors.planner.core.tree import ancestors, frontier, worth


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a frontier node's score."""

    belief: float
    evidence: float = 0.0
    exploration: float = 0.0
    difficulty: float = 0.0
    load: float = 0.0

    @property
    def total(self) -> float:
        """The score."""
        return self.belief + self.evidence + self.exploration + self.difficulty + self.load


def select(state: SearchState) -> Node | None:
    """Return the node to refine next; none if the frontier is empty."""
    candidates = frontier(state)
    easy = [node for node in candidates if node.difficulty <= state.settings.max_difficulty]
    scored = score(state, easy or candidates)
    if not scored:
        return None
    return min(scored, key=lambda pair: (-pair[1].total, pair[0].difficulty, number_of(pair[0].node_id)))[0]


def score(state: SearchState, nodes: list[Node]) -> list[tuple[Node, Terms]]:
    """Return each node with the parts of its score."""
    if not _spreads(state):
        return [(node, Terms(belief=_belief(state, node))) for node in nodes]
    load = _load(state)
    return [(node, _terms(state, node, load)) for node in nodes]


def _spreads(state: SearchState) -> bool:
    rule = state.settings.selection.rule
    return rule == "spread" or (rule == "auto" and state.settings.branches > 1)


def _belief(state: SearchState, node: Node) -> float:
    return float(node.priority * state.settings.selection.failure_decay**node.failures)


def _terms(state: SearchState, node: Node, load: dict[str, float]) -> Terms:
    weights = state.settings.selection
    parent = state.node(node.parent_id)
    distance = math.log(max(worth(parent), 1e-3) / max(state.incumbent.credit, 1.0)) if state.incumbent else 0.0
    near = sum(load.get(above.node_id, 0.0) * 0.5**steps for steps, above in enumerate(ancestors(state, node)))
    return Terms(
        belief=_belief(state, node),
        evidence=weights.evidence * min(0.0, max(-1.0, distance)),
        exploration=weights.exploration * math.sqrt(math.log1p(state.rounds) / (1 + parent.child_rounds)),
        difficulty=-weights.difficulty * (node.difficulty - 1),
        load=-weights.virtual_loss * near,
    )


def _load(state: SearchState) -> dict[str, float]:
    """Count the branches in flight directly below each node, per slot so that the penalty does not grow with them."""
    load: dict[str, float] = {}
    for branch in active(state):
        parent_id = state.node(branch.node_id).parent_id
        load[parent_id] = load.get(parent_id, 0.0) + 1.0 / state.settings.branches
    return load
