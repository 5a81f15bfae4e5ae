"""Data of figures: curves, bands, workloads. Pure: knows no files and no libraries for drawing.

The value of a search is the speedup over the reference, or for programs the score. The best so far is the incumbent's
value. The incumbent is chosen by the lower bound of its interval (the credit), so its median may be a little below the
one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TypeAlias

import msgspec

from ksearch_async.runs.run import Against, Place, Run
from messages.base import ROOT
from messages.verdicts import Interval, TimedWorkload

Curve: TypeAlias = tuple[tuple[float, float], ...]
"""Steps of a step function: from each x on, the value y."""

LEVELS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Speedups for which the time to reach them is compared."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that differ only in their seeds: one curve, with a band."""

    label: str
    runs: tuple[Run, ...]


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of several runs as one; each value holds from its x on."""

    x: tuple[float, ...]
    middle: tuple[float, ...]
    """Medians."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Ranges."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Speed of a series' best kernels on one workload."""

    name: str
    speedup: float
    """Median speedup for one run; for several, the median of these."""
    low: float
    high: float
    """95 % interval for one run; the range for several."""
    baseline: float | None = None
    """The second program's speedup in the last run that timed it."""


def start_of(run: Run) -> float | None:
    """Return the value that a search starts from: 1, or the initial program's score; None if that is not known."""
    if not run.scored:
        return 1.0
    root = run.state.nodes.get(ROOT)
    return root.best.credit if root and root.best else None


def baseline_of(run: Run) -> tuple[str, float] | None:
    """Return the second program that was timed beside the best, and its speedup over the reference."""
    mark = run.step.mark if run.step else None
    if mark is None or not mark.baseline or not mark.baseline_latency_us or not mark.reference_latency_us:
        return None
    return mark.baseline, mark.reference_latency_us / mark.baseline_latency_us


def roofline_of(run: Run) -> float | None:
    """Return the speedup at the limit of the device's data sheet; None if that is not known."""
    bound, reference_us = run.roofline(), run.step.mark.reference_latency_us if run.step else None
    return reference_us / bound.time_us if bound and bound.time_us and reference_us else None


def curve_of(run: Run, against: Against) -> Curve:
    """Return the best so far; empty if there is none, or the axis is not known."""
    found = [(step.at.on(against), step.value) for step in run.steps]
    return tuple((x, y) for x, y in found if x is not None)


def value_at(curve: Curve, x: float) -> float | None:
    """Return a curve's value at x; None before its first step."""
    return next((y for begins, y in reversed(curve) if begins <= x), None)


def band_of(runs: Sequence[Run], against: Against) -> Band | None:
    """Return the curves of runs as one band, from the point where each has a best to the end of the longest.

    A run that has ended keeps its best. None if a run has no best.
    """
    curves = [curve_of(run, against) for run in runs]
    if not curves or not all(curves):
        return None
    ends = [run.place.on(against) or 0.0 for run in runs]
    begins = max(curve[0][0] for curve in curves)
    corners = {x for curve in curves for x, _ in curve if x > begins}
    x = sorted({begins, *corners, max(*ends, begins)})
    columns = [[y for curve in curves if (y := value_at(curve, each)) is not None] for each in x]
    return Band(
        x=tuple(x),
        middle=tuple(median(column) for column in columns),
        low=tuple(min(column) for column in columns),
        high=tuple(max(column) for column in columns),
    )


def reached(run: Run, level: float) -> Place | None:
    """Return the point at which a best's whole interval was at or above a speedup: when its credit reached it."""
    return next((step.at for step in run.steps if step.mark.credit >= level), None)


def workloads_of(runs: Sequence[Run]) -> tuple[Workload, ...]:
    """Return the best kernels' speedups by workload, in the task's order; a single workload has the task's name."""
    found: dict[str, list[TimedWorkload]] = {}
    for run in runs:
        for timed in _timed(run):
            found.setdefault(timed.name, []).append(timed)
    return tuple(_together(name, timed) for name, timed in found.items())


def fractions_of(runs: Sequence[Run]) -> Curve:
    """Return the fraction of workloads with at least each speedup: descending steps, (speedup, fraction above it).

    Workloads of several runs are counted together.
    """
    speedups = sorted(timed.speedup_vs_reference for run in runs for timed in _timed(run))
    count = len(speedups)
    return tuple((speedup, (count - place - 1) / count) for place, speedup in enumerate(speedups))


def _timed(run: Run) -> tuple[TimedWorkload, ...]:
    """Return the best's workloads; for a task with one workload it is made from the best's figures."""
    mark = run.step.mark if run.step else None
    if mark is None or mark.speedup is None:
        return ()
    if mark.workloads:
        return mark.workloads
    if mark.latency_us is None or mark.reference_latency_us is None or run.step is None:
        return ()
    low, high = run.step.interval
    return (
        TimedWorkload(
            name=run.started.task.name if run.started else "",
            latency_us=mark.latency_us,
            reference_latency_us=mark.reference_latency_us,
            speedup_vs_reference=mark.speedup,
            speedup_interval=Interval(low=low, high=high),
            baseline_latency_us=mark.baseline_latency_us,
            speedup_vs_baseline=mark.speedup_vs_baseline,
        ),
    )


def _together(name: str, timed: Sequence[TimedWorkload]) -> Workload:
    speedups = [one.speedup_vs_reference for one in timed]
    one, alone = timed[-1], len(timed) == 1
    beside = next((one for one in reversed(timed) if one.baseline_latency_us), None)
    return Workload(
        name=name,
        speedup=median(speedups),
        low=one.speedup_interval.low if alone else min(speedups),
        high=one.speedup_interval.high if alone else max(speedups),
        baseline=beside.reference_latency_us / beside.baseline_latency_us
        if beside and beside.baseline_latency_us
        else None,
    )
