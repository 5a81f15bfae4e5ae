"""Data of figures: curves, bands, workloads. Pure: knows no files and no libraries for drawing.

A search's value is the speedup over the reference, or for programs the score. The best so far is the incumbent's, which
is chosen by the lower bound of its interval (the credit): its median may lie a little below that of the one before.
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
"""Steps: from each x on, y."""

LEVELS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Speedups that have a time to reach."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that differ by their seeds alone: one curve, with a band."""

    label: str
    runs: tuple[Run, ...]


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of several runs as one; from each x on."""

    x: tuple[float, ...]
    middle: tuple[float, ...]
    """Medians."""
    low: tuple[float, ...]
    high: tuple[float, ...]
    """Ranges."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the best kernels of a series are on one workload."""

    name: str
    speedup: float
    """Of one run its median; of several, the median of these."""
    low: float
    high: float
    """Of one run its 95 % interval, of several their range."""
    baseline: float | None = None
    """The second program's speedup, as the last run that timed it has it."""


def start_of(run: Run) -> float | None:
    """Return what a search starts from: 1, or the initial program's score; None where that is not known."""
    if not run.scored:
        return 1.0
    root = run.state.nodes.get(ROOT)
    return root.best.credit if root and root.best else None


def baseline_of(run: Run) -> tuple[str, float] | None:
    """Return a second program that was timed beside the best, and its speedup over the reference."""
    mark = run.step.mark if run.step else None
    if mark is None or not mark.baseline or not mark.baseline_latency_us or not mark.reference_latency_us:
        return None
    return mark.baseline, mark.reference_latency_us / mark.baseline_latency_us


def roofline_of(run: Run) -> float | None:
    """Return the speedup that the device's data sheet would allow; None where that is not known."""
    bound, reference_us = run.roofline(), run.step.mark.reference_latency_us if run.step else None
    return reference_us / bound.time_us if bound and bound.time_us and reference_us else None


def curve_of(run: Run, against: Against) -> Curve:
    """Return the best so far; empty where there is none, or where the axis is not known."""
    found = [(step.at.on(against), step.value) for step in run.steps]
    return tuple((x, y) for x, y in found if x is not None)


def value_at(curve: Curve, x: float) -> float | None:
    """Return a curve's height at x; none before its first step."""
    return next((y for begins, y in reversed(curve) if begins <= x), None)


def band_of(runs: Sequence[Run], against: Against) -> Band | None:
    """Return the curves of runs as one, from where each has a best up to where the longest ends.

    A run that is over keeps its best. None where a run has no best at all.
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
    """Return when a best's whole interval lay at a speedup or above: its credit, as the target of a budget is met."""
    return next((step.at for step in run.steps if step.mark.credit >= level), None)


def workloads_of(runs: Sequence[Run]) -> tuple[Workload, ...]:
    """Return the best kernels' speedups by workload, in the task's order; a task of one has it under its own name."""
    found: dict[str, list[TimedWorkload]] = {}
    for run in runs:
        for timed in _timed(run):
            found.setdefault(timed.name, []).append(timed)
    return tuple(_together(name, timed) for name, timed in found.items())


def fractions_of(runs: Sequence[Run]) -> Curve:
    """Return which fraction of workloads is at least so fast: descending steps, (speedup, fraction above it).

    Workloads of several runs are counted together.
    """
    speedups = sorted(timed.speedup_vs_reference for run in runs for timed in _timed(run))
    count = len(speedups)
    return tuple((speedup, (count - place - 1) / count) for place, speedup in enumerate(speedups))


def _timed(run: Run) -> tuple[TimedWorkload, ...]:
    """Return the best's workloads; the only one of a task that has no more is made of its figures."""
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
