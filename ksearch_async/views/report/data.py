"""What is drawn of a run, from its updates. Pure: knows no files, no libraries for drawing, and measures nothing anew.

A search's value is the speedup over the reference, or for programs the score. The best so far is the incumbent's, which
is chosen by the lower bound of its interval (the credit): its median may lie a little below that of the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal, TypeAlias

import msgspec

from ksearch_async.runs.feed import AttemptView, ConfirmationView, Head, Mark, NodeView, Totals, Update
from messages.base import ROOT
from messages.verdicts import Interval, TimedWorkload

Against: TypeAlias = Literal["rounds", "seconds", "dollars"]
"""What a run has used up, as an axis."""
Curve: TypeAlias = tuple[tuple[float, float], ...]
"""Steps: from each x on, y."""

LEVELS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Speedups of which it is said when they were reached."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a run had used up when something became known."""

    rounds: int
    seconds: float
    """Wall-clock over all sessions, without pauses."""
    dollars: float | None
    """Of its models; null where a price is not known."""

    def on(self, against: Against) -> float | None:
        """Return it on one axis."""
        return {"rounds": self.rounds, "seconds": self.seconds, "dollars": self.dollars}[against]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt, and when its outcome was known."""

    attempt: AttemptView
    at: Place


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A new best, and when it was one: a candidate that is confirmed counts from then on, not from its screening."""

    mark: Mark
    at: Place

    @property
    def value(self) -> float:
        """Median speedup, or the score."""
        return self.mark.credit if self.mark.speedup is None else self.mark.speedup

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the speedup; a score twice."""
        return self.mark.credit, self.value if self.mark.speedup_high is None else self.mark.speedup_high


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its updates tell it."""

    head: Head
    totals: Totals
    at: Place
    """What it has used up by now."""
    nodes: dict[str, NodeView]
    tried: tuple[Tried, ...]
    steps: tuple[Step, ...]
    confirmed: dict[str, ConfirmationView]
    """What second measurements said, by candidate."""

    @property
    def best(self) -> Step | None:
        """The incumbent."""
        return self.steps[-1] if self.steps else None

    @property
    def start(self) -> float | None:
        """What a search starts from: 1, or the initial program's score; null where that is not known."""
        if not self.head.scored:
            return 1.0
        root = self.nodes.get(ROOT)
        return root.best.credit if root and root.best else None

    @property
    def baseline(self) -> tuple[str, float] | None:
        """A second program that was timed beside the best, and its speedup over the reference."""
        mark = self.best.mark if self.best else None
        if mark is None or not mark.baseline or not mark.baseline_latency_us or not mark.reference_latency_us:
            return None
        return mark.baseline, mark.reference_latency_us / mark.baseline_latency_us

    @property
    def roofline(self) -> float | None:
        """The speedup that the device's data sheet would allow; null where that is not known."""
        mark = self.best.mark if self.best else None
        if mark is None or not self.head.roofline_us or not mark.reference_latency_us:
            return None
        return mark.reference_latency_us / self.head.roofline_us

    @property
    def priced(self) -> bool:
        """Say whether dollars are an axis: all its prices are known, and it spent something."""
        return bool(self.at.dollars)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that differ by their seeds alone: one curve, with a band."""

    label: str
    traces: tuple[Trace, ...]


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


def trace_of(updates: Iterable[Update]) -> Trace | None:
    """Keep what is drawn of a run; none if it has not begun."""
    head: Head | None = None
    totals = Totals()
    nodes: dict[str, NodeView] = {}
    tried: list[Tried] = []
    steps: list[Step] = []
    confirmed: dict[str, ConfirmationView] = {}
    for update in updates:
        head, totals = update.head or head, update.totals
        at = place_of(totals)
        nodes.update((node.node_id, node) for node in update.nodes)
        tried.extend(Tried(attempt=attempt, at=at) for attempt in update.attempts)
        steps.extend(Step(mark=mark, at=at) for mark in update.marks)
        confirmed.update((one.candidate_id, one) for one in update.confirmations)
    if head is None:
        return None
    at = place_of(totals)
    return Trace(
        head=head,
        totals=totals,
        at=at,
        nodes=nodes,
        tried=tuple(tried),
        steps=tuple(steps),
        confirmed=confirmed,
    )


def place_of(totals: Totals) -> Place:
    """Return what a run has used up."""
    dollars = None if totals.unpriced_calls else totals.cost_usd
    return Place(rounds=totals.rounds, seconds=totals.elapsed_s, dollars=dollars)


def curve_of(trace: Trace, against: Against) -> Curve:
    """Return the best so far; empty where there is none, or where the axis is not known."""
    found = [(step.at.on(against), step.value) for step in trace.steps]
    return tuple((x, y) for x, y in found if x is not None)


def value_at(curve: Curve, x: float) -> float | None:
    """Return a curve's height at x; none before its first step."""
    return next((y for begins, y in reversed(curve) if begins <= x), None)


def band_of(traces: Sequence[Trace], against: Against) -> Band | None:
    """Return the curves of runs as one, from where each has a best up to where the longest ends.

    A run that is over keeps its best. None where a run has no best at all.
    """
    curves = [curve_of(trace, against) for trace in traces]
    if not curves or not all(curves):
        return None
    ends = [trace.at.on(against) or 0.0 for trace in traces]
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


def reached(trace: Trace, level: float) -> Place | None:
    """Return when a best's whole interval lay at a speedup or above: its credit, as the target of a budget is met."""
    return next((step.at for step in trace.steps if step.mark.credit >= level), None)


def workloads_of(traces: Sequence[Trace]) -> tuple[Workload, ...]:
    """Return the best kernels' speedups by workload, in the task's order; a task of one has it under its own name."""
    found: dict[str, list[TimedWorkload]] = {}
    for trace in traces:
        for timed in _timed(trace):
            found.setdefault(timed.name, []).append(timed)
    return tuple(_together(name, timed) for name, timed in found.items())


def fractions_of(traces: Sequence[Trace]) -> Curve:
    """Return which fraction of workloads is at least so fast: descending steps, (speedup, fraction above it).

    Workloads of several runs are counted together.
    """
    speedups = sorted(timed.speedup_vs_reference for trace in traces for timed in _timed(trace))
    count = len(speedups)
    return tuple((speedup, (count - place - 1) / count) for place, speedup in enumerate(speedups))


def _timed(trace: Trace) -> tuple[TimedWorkload, ...]:
    """Return the best's workloads; the only one of a task that has no more is made of its figures."""
    mark = trace.best.mark if trace.best else None
    if mark is None or mark.speedup is None:
        return ()
    if mark.workloads:
        return mark.workloads
    if mark.latency_us is None or mark.reference_latency_us is None or trace.best is None:
        return ()
    low, high = trace.best.interval
    return (
        TimedWorkload(
            name=trace.head.task,
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


def children_of(trace: Trace) -> dict[str, list[str]]:
    """Return the ids of the nodes below each node, in order of insertion."""
    found: dict[str, list[str]] = {}
    for node in trace.nodes.values():
        if node.node_id != ROOT:
            found.setdefault(node.parent_id, []).append(node.node_id)
    return {parent: sorted(ids, key=lambda node_id: int(node_id[1:])) for parent, ids in found.items()}


def path_to_best(trace: Trace) -> tuple[str, ...]:
    """Return the nodes that the best kernel was built on, from the root's child down to its own; empty without one."""
    way: list[str] = []
    node_id = trace.best.mark.node_id if trace.best else ""
    while node_id in trace.nodes and node_id != ROOT and node_id not in way:
        way.append(node_id)
        node_id = trace.nodes[node_id].parent_id
    return tuple(reversed(way))
