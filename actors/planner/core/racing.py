"""How fast a candidate has to be for its time to be worth telling exactly; slower ones are stopped early (`outpaced`).

An outpaced candidate is correct, and slower than what was asked for: that is all that is known of it, besides an
interval. So the bar is set where that is all that matters:

- A branch with a correct candidate keeps the better of the two. What is clearly below `NEAR` of the branch's best
  cannot become its best, nor the incumbent; what is nearer is told exactly, for the coder to learn from.
- A branch without one attaches whatever is its first, even if it is slower than its parent: that keeps paths open that
  lead down before they lead up. Below `FAR` of the parent's (under the root: of the reference's) it is attached for the
  low end of its interval. How slow a detour is, is not known more exactly than needed.

An outpaced candidate never becomes the incumbent.
"""

from __future__ import annotations

from actors.planner.core.state import Branch, SearchState

NEAR = 0.9
FAR = 0.5
_REFERENCE = 1.0


def keep_above(state: SearchState, branch: Branch) -> float | None:
    """Return the speedup below which a branch's next candidate need not be timed to the end; None: no bar of ours."""
    if state.scored:
        return None
    if branch.best is not None:
        return _share(NEAR, branch.best.credit)
    return _share(FAR, branch.base.credit if branch.base is not None else _REFERENCE)


def _share(share: float, credit: float | None) -> float | None:
    return None if credit is None else share * credit
