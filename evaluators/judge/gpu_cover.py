"""The judge's own work on a GPU that every timed call begins behind.

It overwrites the L2 cache, and it keeps the GPU busy while the call is launched, so that launches are not in the times.
It must be the judge's: a GPU runs the work of one process at a time, and what a candidate launches meanwhile, on
whatever stream, waits with its first event. Behind work in its own process, another stream would begin at once.

A GPU takes turns between processes that have work for it, of about 2 ms each (H200), so the cover must be over before
a turn is: else the call begins in its midst. Of TriMul (1.8 and 1.9 ms) calls behind 1.5 ms of it ended as they do on
an idle GPU, those behind 2 to 6 ms took 0.4 to 0.5 ms longer by the judge's clock, and one of 3.3 ms was interrupted.

By that it is found out which calls wait for the GPU in their midst, to read a length: behind a cover of 6 ms they begin
in their turn and then wait until it is over. Nothing can be hidden of those. They, and long ones, begin on an idle GPU.
Each side is timed in the way that suits it best.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from evaluators.vendors.nvidia.driver import Context
from messages.tasks import Measure

_FACTOR = 4
"""A sweep writes this many times the L2 cache: no line of it is left."""
IDLE = 0
"""The call begins when the GPU is idle again, after one sweep."""
_LEVELS = (6, 12, 24)
"""Sweeps that launches are hidden behind: 0.4, 0.8 and 1.5 ms on an H200."""
_PROBE = 96
"""Sweeps that take several turns: 6 ms."""
_TRIES, _FEW_TRIES = 4, 2
_NO_SLOWER, _NO_SLOWER_NS = 1.03, 500
_ROOM = 1.5
"""Times what launching took at best: four calls that were hidden do not show that forty will be. Where 0.4 ms had just
been enough, one of eight evaluations read 388 us instead of 255, and two left 13 and 17 % open (TriMul, H200)."""
_LONG_NS = 5_000_000
"""Of what takes so long, launches are no part to speak of."""
_VERY_LONG_NS = 100_000_000
"""What takes so long takes long the next time, too."""
_WAITED_NS = 1_000_000
"""What waits for the GPU waits for 4 ms of 6 (H200; its turn comes after 1 or 2)."""


class Cover:
    """Sweeps of the L2 cache of the first visible GPU."""

    def __init__(self, measure: Measure) -> None:
        """Allocate what is written.

        Args:
            measure: `device` has calls begin while the sweeps go on; else they begin when the GPU is idle again.
        """
        self._context = Context()
        self._hides = measure == "device"
        self._memory = torch.empty(_FACTOR * self._context.l2_bytes, dtype=torch.uint8, device="cuda:0")
        self._sweep_ns = self._time_sweep() if self._hides else 0.0

    @property
    def levels(self) -> tuple[int, ...]:
        """How many sweeps a call may begin behind."""
        return (IDLE, *_LEVELS) if self._hides else (IDLE,)

    def _time_sweep(self) -> float:
        """Return for how long one of many sweeps keeps the GPU busy, in ns."""
        took_ns: list[int] = []
        for _ in range(_TRIES):
            torch.cuda.synchronize()
            begun = time.perf_counter_ns()
            self._begin(_PROBE)
            torch.cuda.synchronize()
            took_ns.append(time.perf_counter_ns() - begun)
        return min(took_ns) / _PROBE

    def over(self, sweeps: int) -> Callable[[], None]:
        """Return what is to be done right before a call is asked for.

        Args:
            sweeps: how many the call begins behind, or `IDLE`.
        """
        return lambda: self._begin(sweeps)

    def _begin(self, sweeps: int) -> None:
        self._context.forget_persisting_l2()
        for _ in range(sweeps or 1):
            self._memory.zero_()
        if sweeps == IDLE:
            torch.cuda.synchronize()

    def search(self) -> CoverSearch:
        """Return what finds the best for each call of one side."""
        return CoverSearch(self._sweep_ns, hides=self._hides)


class CoverSearch:
    """Behind how many sweeps calls of one side are best made, of one workload after the other."""

    def __init__(self, sweep_ns: float, *, hides: bool = True) -> None:
        """Begin.

        Args:
            sweep_ns: for how long a sweep keeps the GPU busy.
            hides: false: all calls begin when the GPU is idle.
        """
        self.hides = hides
        self._sweep_ns = sweep_ns
        self._last: int | None = None
        """What was best on the workload before: it most often is again."""

    def best_for(self, span_ns: Callable[[int], int]) -> int:
        """Return behind how many sweeps calls on a workload take least, or `IDLE`.

        Args:
            span_ns: makes a call behind so many sweeps and returns its time.
        """
        if not self.hides:
            return IDLE
        found = best_sweeps(span_ns, self._sweep_ns, likely=self._last)
        self._last = found
        return found


def best_sweeps(span_ns: Callable[[int], int], sweep_ns: float, *, likely: int | None = None) -> int:
    """Return how many sweeps hide all launches of a side, or `IDLE`; see `CoverSearch.best_for`.

    First what takes several turns: what waits for the GPU in its midst takes some milliseconds longer behind that than
    on an idle GPU, and so does what is too long for a turn. Then the others, from the lowest on, until one turns out to
    hide as much; what is `likely` comes first, behind fewer calls. What would hide launches only just is not tried: how
    long launching takes is seen on an idle GPU, where it is what a call takes.
    """
    tries = _TRIES if likely is None else _FEW_TRIES
    idle_ns = [span_ns(IDLE)]
    if idle_ns[0] > _VERY_LONG_NS:
        return IDLE
    idle_ns += [span_ns(IDLE) for _ in range(1, tries)]
    if min(idle_ns) > _LONG_NS:
        return IDLE
    found = [[span_ns(_PROBE) for _ in range(tries)]]
    if min(found[0]) > min(idle_ns) + _WAITED_NS:
        return IDLE
    is_launching = min(idle_ns) > _at_most(min(found[0]))
    enough_ns = _ROOM * min(idle_ns) if is_launching else 0.0
    *levels, most = _LEVELS
    for level in sorted(levels, key=lambda level: level != likely):
        if level * sweep_ns < enough_ns:
            continue
        found.append([span_ns(level) for _ in range(_TRIES)])
        # One call in which a launch came too late is enough: it would be one of many.
        if max(found[-1]) <= _at_most(min(median(took) for took in found)):
            return level
    return most


def _at_most(span_ns: float) -> float:
    """Return what takes as long as that."""
    return span_ns * _NO_SLOWER + _NO_SLOWER_NS
