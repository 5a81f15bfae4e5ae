"""Times a candidate on all workloads of a task in rounds, and combines the results.

All workloads get a few pairs before any gets many, so that a hopeless candidate is given up early; further pairs go to
the workload with the widest interval. Precision and racing apply to the geometric mean; the time grows by a share of
one workload's for each further one.

The speedup of a task is the geometric mean of its workloads' speedups, and so are the ends of its interval. That is
exact if all errors have the same direction (comonotone), and wider than necessary if they are independent (Embrechts,
McNeil, Straumann, "Correlation and dependence in risk management", 2002, theorem 1).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Generic, TypeVar

import msgspec

from evaluators.judge.candidate.bench import Bench, Calls
from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.check.wrong import Failure, WrongOutputError, named
from evaluators.judge.data.draws import Draws
from evaluators.judge.data.families import DataSet, TimedData
from evaluators.judge.time.sampling import (
    FOUR,
    Pair,
    Timing,
    TimingPolicy,
    decide,
    is_unfit,
    outpaced,
    summarize,
    time_pairs,
    too_fast,
    with_discards,
)
from messages.tasks import TaskSpec
from messages.verdicts import (
    Interval,
    Measured,
    Outpaced,
    Quarantined,
    TimedWorkload,
    Unstable,
    Verdict,
    Wrong,
)


class OneWorkload(ABC):
    """Times candidates on one workload: the part that a CPU and a GPU share."""

    fastest_memory: float
    """Bandwidth in bytes per second that no memory of the device reaches."""

    def __init__(self, bench: Bench, task: TaskSpec, *, share: int) -> None:
        self.bench = bench
        self._data = TimedData(bench.problem, task.tolerance, same_state=bench.returns_outputs, share=share)
        self._draws = Draws()
        self._calls: Calls | None = None
        """Calls of the candidate that is timed."""

    @abstractmethod
    def conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        """Return the verdict that follows from pairs."""

    @abstractmethod
    def _refuse_if_different(self, data: DataSet, calls: Calls) -> None:
        """Compare the outputs of the last call with the reference's of the same pair."""

    def _lane(self, run_pair: Callable[[bool], Pair], enter: Callable[[], None], calls: Calls) -> Lane:
        return Lane(
            run_pair,
            enter,
            begin=lambda: calls.on(self._data.next()),
            reference_ns=self.bench.reference_ns,
        )

    def _see_outputs(self, data: DataSet, calls: Calls) -> None:
        """Check the outputs of a timed call, those of further calls at crossed places, and the process's memory."""
        self._refuse_if_different(data, calls)
        if data.positions is not None:
            self._draws.add(data.positions([self.bench.buffers.results]))
        for _ in calls.elsewhere(data):
            self._refuse_if_different(data, calls)
        calls.look_after()

    def _slow_or_wrong(self, timing: Timing, policy: TimingPolicy) -> Verdict | None:
        if timing.hopeless:
            return outpaced(timing, policy)
        said = self._draws.complaint()
        return Wrong(reason=said, family="timed calls") if said else None

    def _too_fast(self, timing: Timing) -> Quarantined | None:
        return too_fast(
            timing,
            tensor_bytes=self.bench.tensor_bytes,
            needed_bytes=lambda: self.bench.needed_bytes,
            bytes_per_s=self.fastest_memory,
        )

    def _uncertain(self, timing: Timing, policy: TimingPolicy) -> Unstable | None:
        if timing.half_width <= policy.unstable_half_width:
            return None
        reason = f"after {timing.pairs} pairs the speedup is only known to ±{timing.half_width:.0%}"
        return Unstable(reason=reason, speedup_interval=timing.interval)


_Timer = TypeVar("_Timer", bound=OneWorkload)


class TimedWorkloads(Generic[_Timer]):
    """The workloads of a task on which candidates are timed, the cheapest first."""

    def __init__(self, timers: Iterable[_Timer]) -> None:
        self.timers = sorted(timers, key=lambda timer: timer.bench.reference_ns)
        self.first = self.timers[0]
        self._at = self.first
        """The workload that failures are attributed to."""

    def attempt(self, run: Callable[[], Rounds]) -> Rounds | Verdict:
        """Time a candidate; if it fails, return the verdict, which names the workload."""
        self._at = self.first
        try:
            return run()
        except (WrongOutputError, CandidateFailedError) as failure:
            return self.named(failure.verdict, self._at)

    def turn_to(self, timer: _Timer) -> None:
        """Set the workload that failures are attributed to."""
        self._at = timer

    def lane(self, timer: _Timer, lane: Lane) -> Lane:
        """Wrap a lane so that failures name its workload."""

        def turned(act: Callable[[], None]) -> Callable[[], None]:
            def act_there() -> None:
                self.turn_to(timer)
                act()

            return act_there

        lane.begin, lane.enter = turned(lane.begin), turned(lane.enter)
        return lane

    def run(self, side: CandidateSide, lanes: list[Lane], policy: TimingPolicy) -> Rounds:
        """Run the pairs of a candidate that is loaded."""
        # A candidate compiles on its first call on each workload. So all of these come before any pair: then nothing
        # can be started any more, and started processes are looked for, now and at the end.
        for lane in lanes:
            lane.begin()
        side.seal()
        side.expect_alone()
        rounds = time_lanes(lanes, policy)
        side.expect_alone()
        return rounds

    def run_again(
        self, side: CandidateSide, lanes: list[Lane], policy: TimingPolicy, number: int, before: Rounds
    ) -> Rounds:
        """Run the pairs of one workload again, of a candidate that has been sealed; see `repeat_lane`."""
        side.expect_alone()
        self.turn_to(self.timers[number])
        rounds = repeat_lane(lanes, number, policy, before)
        side.expect_alone()
        return rounds

    def conclude(self, rounds: Rounds, policy: TimingPolicy) -> Verdict:
        """Return the verdict from pairs: of several workloads the first that was not measured decides."""
        if len(self.timers) == 1:
            return self.first.conclude(rounds.together, policy)
        if rounds.together.hopeless:
            return self.given_up(rounds, policy)
        # The precision of each does not matter, only that of their mean.
        each_policy = msgspec.structs.replace(policy, unstable_half_width=math.inf)
        found: dict[str, Measured] = {}
        for timer, timing in zip(self.timers, rounds.timings, strict=False):
            verdict = timer.conclude(timing, each_policy)
            if not isinstance(verdict, Measured):
                return self.named(verdict, timer)
            found[timer.bench.workload] = verdict
        measured = measured_together(found, rounds.together, policy)
        if not isinstance(measured, Measured):
            return measured
        notes = [f"workload {name!r}: {note}" for name, one in found.items() for note in one.notes]
        return msgspec.structs.replace(measured, notes=tuple(notes))

    def given_up(self, rounds: Rounds, policy: TimingPolicy) -> Outpaced:
        """Return the verdict on a candidate that was given up, with the times on each of several workloads."""
        verdict = outpaced(rounds.together, policy)
        if len(self.timers) == 1:
            return verdict
        pairs = zip(self.timers, rounds.timings, strict=False)
        workloads = tuple(told(timer.bench.workload, timing) for timer, timing in pairs)
        return msgspec.structs.replace(verdict, workloads=workloads)

    def named(self, verdict: Failure, timer: _Timer) -> Failure:
        """Return a verdict that names its workload."""
        return named(verdict, timer.bench.workload)


_FIRST_VISIT, _VISIT = 4, 8
"""Pairs of one workload in a row. The first visit is short, to find hopeless candidates; each switch costs calls.
Between them come as many pairs as it lacks. For a workload that needs fewer than the second number, that many."""
_SLOW_NS = 500_000_000
"""A workload with slower reference calls gets four pairs if there are others."""
_REPEATED = 16
"""Least number of pairs to run again if the first ones are doubted: fewer would let noise decide."""


class Lane:
    """One workload while a candidate is timed on it."""

    def __init__(
        self,
        run_pair: Callable[[bool], Pair],
        enter: Callable[[], None],
        *,
        begin: Callable[[], None],
        reference_ns: float = 0.0,
    ) -> None:
        """Begin without a pair.

        Args:
            run_pair: measures one pair; its argument is True if the candidate goes first.
            enter: called before the first pairs, and before pairs of this workload follow those of another.
            begin: makes the first call, before any pair of any workload.
            reference_ns: approximate latency of the reference; long calls may get only four pairs.
        """
        self.run_pair = run_pair
        self.enter, self.begin = enter, begin
        self._reference_ns = reference_ns
        self.pairs: list[Pair] = []
        self.disturbed: list[Pair] = []
        self.timing: Timing | None = None
        """Timing of the pairs so far."""

    def visit(self, policy: TimingPolicy) -> None:
        """Run some pairs; fewer if the host turns out to be unfit for timing."""
        self.enter()
        fewest = self.fewest_pairs(policy)
        lacking = fewest - len(self.pairs)
        count = _FIRST_VISIT if not self.pairs else lacking if lacking > 0 else min(_VISIT, fewest)
        self._run(min(len(self.pairs) + count, self.most_pairs(policy)), policy)

    def repeat(self, policy: TimingPolicy) -> None:
        """Run as many pairs again, or more; earlier ones no longer count."""
        count = min(max(len(self.pairs), _REPEATED), self.most_pairs(policy))
        self.pairs.clear()
        self.disturbed.clear()
        self.enter()
        self._run(count, policy)

    def _run(self, until: int, policy: TimingPolicy) -> None:
        while len(self.pairs) < until and not self.is_unfit(policy):
            pair = self.run_pair(len(self.pairs) % 2 == 0)
            (self.disturbed if pair.disturbance else self.pairs).append(pair)
        is_unfit = self.is_unfit(policy)
        pairs = [*self.pairs, *self.disturbed] if is_unfit else self.pairs
        timing = summarize(pairs, may_do=self.fewest_pairs(policy) == FOUR)
        self.timing = with_discards(timing, self.disturbed, policy, is_unfit=is_unfit)

    def is_unfit(self, policy: TimingPolicy) -> bool:
        """Return True if too many pairs were disturbed."""
        return is_unfit(self.pairs, self.disturbed, policy)

    def fewest_pairs(self, policy: TimingPolicy) -> int:
        """Return the least number of its pairs."""
        return FOUR if self._reference_ns > min(policy.long_ns, _SLOW_NS) else policy.min_pairs

    def most_pairs(self, policy: TimingPolicy) -> int:
        """Return the largest number of its pairs."""
        return FOUR if self._reference_ns > _SLOW_NS else policy.max_pairs

    @property
    def half_width(self) -> float:
        """Return the width of its interval."""
        return self.timing.half_width if self.timing else math.inf


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the pairs of several workloads."""

    timings: tuple[Timing, ...]
    """Timing of each workload, in their order; shorter if it was given up before all had their turn."""
    together: Timing


def time_lanes(lanes: Sequence[Lane], policy: TimingPolicy) -> Rounds:
    """Run pairs of all workloads, in turn, until their geometric mean is precise enough or the time is used up.

    All must have begun.
    """
    if len(lanes) == 1:
        lanes[0].enter()
        timing = time_pairs(lanes[0].run_pair, policy)
        return Rounds(timings=(timing,), together=timing)
    policy = _longer(policy, len(lanes))
    begun = time.perf_counter()
    while (lane := _next(lanes, policy)) is not None:
        lane.visit(policy)
        timings = tuple(lane.timing for lane in lanes if lane.timing is not None)
        if lane.is_unfit(policy):
            return Rounds(timings=timings, together=together(timings))
        if len(timings) == len(lanes):
            found = together(timings)
            counted = msgspec.structs.replace(found, pairs=min(_as_counted(lane, policy) for lane in lanes))
            decided = decide(counted, time.perf_counter() - begun, policy)
            if decided is not None:
                return Rounds(timings=timings, together=msgspec.structs.replace(decided, pairs=found.pairs))
    timings = tuple(lane.timing for lane in lanes if lane.timing is not None)
    return Rounds(timings=timings, together=together(timings))


def repeat_lane(lanes: Sequence[Lane], number: int, policy: TimingPolicy, before: Rounds) -> Rounds:
    """Run the pairs of one workload again, which then count. Returns the new result of all.

    The lower end does not rise above that of `before`: otherwise being doubted would pay after bad luck.
    """
    if len(lanes) == 1:
        timing = _no_better(time_lanes(lanes, policy).together, before.together)
        return Rounds(timings=(timing,), together=timing)
    lane = lanes[number]
    lane.repeat(policy)
    if lane.timing is not None:
        lane.timing = _no_better(lane.timing, before.timings[number])
    timings = tuple(lane.timing for lane in lanes if lane.timing is not None)
    return Rounds(timings=timings, together=together(timings))


def _no_better(timing: Timing, before: Timing) -> Timing:
    interval = timing.interval
    low = min(interval.low, before.interval.low)
    half_width = max(timing.half_width, math.log(interval.high / low) / 2)
    return msgspec.structs.replace(timing, interval=Interval(low=low, high=interval.high), half_width=half_width)


def together(timings: Sequence[Timing]) -> Timing:
    """Return the geometric means over several workloads, also of the ends of their intervals."""
    return Timing(
        pairs=min(timing.pairs for timing in timings),
        latency_us=geometric_mean([timing.latency_us for timing in timings]),
        reference_latency_us=geometric_mean([timing.reference_latency_us for timing in timings]),
        speedup=geometric_mean([timing.speedup for timing in timings]),
        interval=mean_interval([timing.interval for timing in timings]),
        half_width=fmean(timing.half_width for timing in timings),
        discarded=tuple(disturbance for timing in timings for disturbance in timing.discarded),
        is_disturbed=any(timing.is_disturbed for timing in timings),
    )


def mean_interval(intervals: Sequence[Interval]) -> Interval:
    """Return the geometric means of both ends."""
    return Interval(
        low=geometric_mean([interval.low for interval in intervals]),
        high=geometric_mean([interval.high for interval in intervals]),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(fmean(math.log(value) for value in values))


def measured_together(found: Mapping[str, Measured], all_of_them: Timing, policy: TimingPolicy) -> Measured | Unstable:
    """Return the verdict on a candidate that was measured on each of several workloads."""
    if all_of_them.half_width > policy.unstable_half_width:
        reason = (
            f"after {all_of_them.pairs} pairs or more on each workload the geometric mean of their speedups is only "
            f"known to ±{all_of_them.half_width:.0%}"
        )
        return Unstable(reason=reason, speedup_interval=all_of_them.interval)
    workloads = tuple(_workload(name, measured) for name, measured in found.items())
    mean = Measured(
        timed=True,
        latency_us=geometric_mean([one.latency_us for one in workloads]),
        reference_latency_us=geometric_mean([one.reference_latency_us for one in workloads]),
        speedup_vs_reference=geometric_mean([one.speedup_vs_reference for one in workloads]),
        speedup_interval=mean_interval([one.speedup_interval for one in workloads]),
        measure=next(iter(found.values())).measure,
        pairs=sum(one.pairs for one in workloads),
        workloads=workloads,
    )
    return _with_baseline(mean, next(iter(found.values())).baseline)


def _with_baseline(mean: Measured, name: str) -> Measured:
    latencies = [one.baseline_latency_us for one in mean.workloads if one.baseline_latency_us is not None]
    speedups = [one.speedup_vs_baseline for one in mean.workloads if one.speedup_vs_baseline is not None]
    intervals = [one.baseline_interval for one in mean.workloads if one.baseline_interval is not None]
    if not name or not len(latencies) == len(speedups) == len(intervals) == len(mean.workloads):
        return mean
    return msgspec.structs.replace(
        mean,
        baseline=name,
        baseline_latency_us=geometric_mean(latencies),
        speedup_vs_baseline=geometric_mean(speedups),
        baseline_interval=mean_interval(intervals),
    )


def _workload(name: str, measured: Measured) -> TimedWorkload:
    values = {field: getattr(measured, field) for field in TimedWorkload.__struct_fields__ if field != "name"}
    needed = ("latency_us", "reference_latency_us", "speedup_vs_reference", "speedup_interval")
    if any(values[field] is None for field in needed):
        raise ValueError(f"workload {name!r} was not timed")
    return TimedWorkload(name=name, **values)


def told(name: str, timing: Timing) -> TimedWorkload:
    """Return the entry of one workload in a verdict on a candidate that was given up."""
    return TimedWorkload(
        name=name,
        latency_us=timing.latency_us,
        reference_latency_us=timing.reference_latency_us,
        speedup_vs_reference=timing.speedup,
        speedup_interval=timing.interval,
        pairs=timing.pairs,
    )


def _longer(policy: TimingPolicy, count: int) -> TimingPolicy:
    factor = 1 + policy.more_time * (count - 1)
    return msgspec.structs.replace(
        policy,
        min_pairs=policy.min_pairs_of_several,
        lease_s=factor * policy.lease_s,
        stretched_lease_s=factor * policy.stretched_lease_s,
    )


def _as_counted(lane: Lane, policy: TimingPolicy) -> int:
    count = len(lane.pairs)
    if count >= lane.most_pairs(policy):
        return policy.max_pairs
    return max(count, policy.min_pairs) if count >= lane.fewest_pairs(policy) else count


def _next(lanes: Sequence[Lane], policy: TimingPolicy) -> Lane | None:
    """Return the next workload: those with the fewest pairs up to the minimum, then the one with the widest interval.

    None: those that are not precise enough have had their largest number of pairs.
    """
    too_few = [lane for lane in lanes if len(lane.pairs) < lane.fewest_pairs(policy)]
    if too_few:
        return min(too_few, key=lambda lane: len(lane.pairs))
    worth_it = [
        lane for lane in lanes if len(lane.pairs) < lane.most_pairs(policy) and lane.half_width > policy.half_width
    ]
    return max(worth_it, key=lambda lane: lane.half_width, default=None)
