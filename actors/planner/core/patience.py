"""How long a branch may go on without progress. One that is behind the others gives up its slot sooner.

Several branches at once start from different programs, and what one of them finds is not in the others: rounds spent on
polishing a program that has been overtaken are lost. So the window shrinks with the distance to the incumbent, as
brackets of successive halving do (Jamieson and Talwalkar 2016), but without a schedule. docs/design/0009 has figures.
"""

from __future__ import annotations

import math

from actors.planner.core.branch import Branch
from actors.planner.core.selection import distance, spreads
from actors.planner.core.state import SearchState


def stagnation(state: SearchState, branch: Branch) -> str | None:
    """Say that a branch made no progress for as long as it may: not correct yet, and correct but not faster."""
    if branch.best is None:
        window = state.settings.repair_window or state.settings.stagnation_window
        return f"{branch.stale} attempts without a correct candidate" if branch.stale >= window else None
    window = window_of(state, branch.best.credit or 0.0)
    if branch.stale < window:
        return None
    behind = ", behind the best" if window < state.settings.stagnation_window else ""
    return f"{branch.stale} {'attempt' if branch.stale == 1 else 'attempts'} without improvement{behind}"


def window_of(state: SearchState, credit: float) -> int:
    """Return how many attempts in a row a branch with this best credit may go without improvement."""
    window, patience = state.settings.stagnation_window, state.settings.selection.patience
    if not patience or not spreads(state):
        return window
    return max(1, round(window * math.exp(min(0.0, distance(state, credit)) / patience)))
