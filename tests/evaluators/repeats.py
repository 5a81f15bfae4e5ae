"""What many evaluations of the same candidate come to."""

from __future__ import annotations

from statistics import median

import msgspec

from messages.verdicts import Measured, Verdict


class Repeats(msgspec.Struct, frozen=True, kw_only=True):
    """The same candidate many times."""

    threads: int
    """0: all."""
    beside: str
    of: str
    """What the candidate does."""
    evaluations: int
    unstable: float
    """Share of them."""
    speedups: list[float]
    intervals: list[tuple[float, float]]
    median_speedup: float
    spread: float
    """Largest distance from the median, relative."""
    covered: float
    """Share of the intervals that hold the quiet value of their turn."""
    quiet_values: list[float]


def middle_of(verdicts: list[Verdict]) -> float:
    """Return the median speedup of those that were measured; 0 if none was."""
    speedups = [verdict.speedup_vs_reference or 0.0 for verdict in verdicts if isinstance(verdict, Measured)]
    return median(speedups) if speedups else 0.0


def summed_up(batches: list[list[Verdict]], values: list[float], *, threads: int, beside: str, of: str) -> Repeats:
    """Sum up batches, each of which is held against its value."""
    verdicts = [verdict for one in batches for verdict in one]
    measured = [
        (verdict, value)
        for one, value in zip(batches, values, strict=True)
        for verdict in one
        if isinstance(verdict, Measured)
    ]
    speedups = [verdict.speedup_vs_reference or 0.0 for verdict, _ in measured]
    held = [
        (found.low, found.high, value) for verdict, value in measured if (found := verdict.speedup_interval) is not None
    ]
    middle = middle_of(verdicts)
    return Repeats(
        threads=threads,
        beside=beside,
        of=of,
        evaluations=len(verdicts),
        unstable=round(1 - len(measured) / len(verdicts), 4),
        speedups=[round(speedup, 4) for speedup in speedups],
        intervals=[(round(low, 4), round(high, 4)) for low, high, _ in held],
        median_speedup=round(middle, 4),
        spread=round(max((abs(speedup / middle - 1) for speedup in speedups), default=1.0), 4),
        covered=round(sum(low <= value <= high for low, high, value in held) / max(len(held), 1), 4),
        quiet_values=[round(value, 4) for value in values],
    )
