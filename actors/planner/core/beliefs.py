"""What was expected of actions against what came of them.

A gain is a factor over the candidate that an action built on. What was expected is taken from the time when the branch
began: a model that revises its expectations after the fact is not calibrated by that. Scores have no natural zero, so
they have no gains.
"""

from __future__ import annotations

import math

import msgspec

from actors.planner.core.branch import Score
from actors.planner.core.state import Node, SearchState
from messages.verdicts import Interval


class Gain(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as fast as its base a candidate is."""

    gain: float
    interval: Interval
    """From the intervals of both: it holds the true gain whenever these hold the true speedups."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """The record of expected against measured gains."""

    count: int = 0
    """Actions of which a gain was expected and measured."""
    mean_ratio: float | None = None
    """Geometric mean of measured / expected: below 1, too much is expected."""
    reached: int = 0
    """Of these, actions whose gain's interval does not lie below what was expected."""
    failed: int = 0
    """Actions of which a gain was expected, and that have no correct candidate after a branch."""


def gain_of(best: Score | None, base: Score | None) -> Gain | None:
    """Return the gain of a candidate over its base, None being the reference; None unless both were timed."""
    if best is None or not best.speedup or not best.credit:
        return None
    speedup, low, high = (1.0, 1.0, 1.0) if base is None else (base.speedup, base.credit, base.speedup_high)
    if not speedup or not low:
        return None
    return Gain(
        gain=best.speedup / speedup,
        interval=Interval(low=best.credit / (high or speedup), high=(best.speedup_high or best.speedup) / low),
    )


def gain_of_node(state: SearchState, node: Node) -> Gain | None:
    """Return the gain of a node's best over what it was built on."""
    return None if state.scored else gain_of(node.best, node.base)


def calibration(state: SearchState) -> Calibration:
    """Return the record over all nodes."""
    ratios: list[float] = []
    reached = failed = 0
    for node in state.nodes.values():
        expected = node.expected_then
        if expected is None:
            continue
        found = gain_of_node(state, node)
        if found is not None:
            ratios.append(math.log(found.gain / expected))
            reached += found.interval.high >= expected
        elif node.best is None and node.failures:
            failed += 1
    mean = math.exp(math.fsum(ratios) / len(ratios)) if ratios else None
    return Calibration(count=len(ratios), mean_ratio=mean, reached=reached, failed=failed)
