"""The judge's own work on a GPU that every timed call begins behind.

It overwrites the L2 cache, and it keeps the GPU busy while the call is launched, so that launches are not in the times.
It must be the judge's: a GPU runs the work of one process at a time, and what a candidate launches meanwhile, on
whatever stream, begins when this is over. Behind work in its own process, another stream would begin at once.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch

from evaluators.vendors.nvidia.driver import Context
from messages.tasks import Measure

_FACTOR = 4
"""A sweep writes this many times the L2 cache: no line of it is left."""
_LEVELS = (6, 24, 96)
"""Sweeps that launches are hidden behind: 0.4, 1.5 and 6 ms on an H200."""
_TRIES = 4
_NO_SLOWER, _NO_SLOWER_NS = 1.03, 500
_LONG_NS = 5_000_000
"""Of what takes so long, launches are no part to speak of."""


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

    @property
    def levels(self) -> tuple[int, ...]:
        """How many sweeps a call may begin behind."""
        return _LEVELS if self._hides else (1,)

    def over(self, sweeps: int) -> Callable[[], None]:
        """Return what is to be done right before a call is asked for.

        Args:
            sweeps: how many, if the call begins behind them; else one does.
        """
        return lambda: self._begin(sweeps)

    def _begin(self, sweeps: int) -> None:
        self._context.forget_persisting_l2()
        for _ in range(sweeps if self._hides else 1):
            self._memory.zero_()
        if not self._hides:
            torch.cuda.synchronize()

    def enough_for(self, span_ns: Callable[[int], int]) -> int:
        """Return how many sweeps hide all launches of a side: with more, its calls take no less time.

        Args:
            span_ns: makes a call behind so many sweeps and returns its time.
        """
        return fewest_sweeps(span_ns) if self._hides else 1


def fewest_sweeps(span_ns: Callable[[int], int]) -> int:
    """Return how many sweeps hide all launches of a side; see `Cover.enough_for`.

    Levels are tried from the lowest on, until one turns out to be enough. What launches for longer than a level hides
    takes less time behind the next one, by as much as that hides more, until its launches are hidden: where that is
    nothing, a third one would hide nothing either.
    """
    found: list[list[int]] = []
    for level in _LEVELS:
        found.append([span_ns(level) for _ in range(_TRIES)])
        if min(found[-1]) > _LONG_NS:
            return _LEVELS[0]
        # One call in which a launch came too late is enough: it would be one of many.
        least = min(median(took) for took in found) * _NO_SLOWER + _NO_SLOWER_NS
        for enough, took in zip(_LEVELS, found[:-1], strict=False):
            if max(took) <= least:
                return enough
    return _LEVELS[-1]
