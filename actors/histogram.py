"""How long things took, counted in buckets. Plain Python: a worker counts whether or not anybody asks."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 600.0)
"""A compilation takes seconds, an evaluation or a minute, an answer ten minutes at most."""


class Histogram:
    """Counts of durations, each in the first bucket whose bound it does not exceed."""

    def __init__(self, bounds_s: tuple[float, ...] = BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return bound → how many did not exceed it, in the order and words of Prometheus; the last bound is `+Inf`."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
