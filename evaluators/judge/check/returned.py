"""Candidates that return their outputs instead of writing them where the judge looks: what handing them over costs.

Their runner copies the outputs as part of the call, which the reference does not do. So what the same copy costs is
taken off: measured in the baseline worker, which copies the reference's outputs, just computed, to memory that is as
cold. A candidate could spare itself the copy and be given its cost nevertheless: never more is taken off than the
least that was measured, nor than `COPY_SHARE` of a call. What computes little is told slower than it is by the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from evaluators.judge.candidate.bench import Calls
from evaluators.judge.reference.baseline import BaselineSide

_COPIES = 8
_WARM_UPS, _WARM_UP_S = 14, 2.0
"""So many more than others need: what allocates its outputs is slow until its heap has grown to what calls need."""


def copy_cost_ns(baseline: BaselineSide, sweep: Callable[[], None], *, limit_s: float) -> int:
    """Return the least that copying the reference's outputs takes, caches cold but for them."""
    costs: list[int] = []
    for _ in range(_COPIES):
        sweep()
        baseline.call(limit_s=limit_s)
        costs.append(baseline.keep_ns())
    return max(0, min(costs) - baseline.empty_ns)


def warm_up(calls: Calls, family: str) -> None:
    """Call a candidate on what lies in the buffers until its heap has grown."""
    deadline = time.monotonic() + _WARM_UP_S
    for _ in range(_WARM_UPS):
        if time.monotonic() > deadline:
            return
        calls.again(family)
