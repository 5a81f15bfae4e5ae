"""Times candidates on one workload on a GPU: the pairs with its references, and what they come to.

Each side times its own calls by events of the GPU; the judge, by its own clock, the whole of each: request, call,
everything finished, and (of a candidate) its outputs copied out. A candidate's events are believed only as far as the
judge's clock agrees: what it says beyond them, and more than beyond those of empty calls in their midst, is added to
its time, or it is refused. The candidate's process answers those, too, so they in turn are held against some from
before it was loaded, more coarsely: a process that has been at work answers later than one that has not. In few calls
that may be noise: pairs that are doubted are run again, and then those count and no others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from statistics import median

import msgspec
import torch

from evaluators.judge.awake import AwakeCores
from evaluators.judge.bench import Bench, Calls
from evaluators.judge.candidate import CandidateSide
from evaluators.judge.draws import Draws
from evaluators.judge.families import DataSet
from evaluators.judge.gpu_baseline import GpuBaselineSide
from evaluators.judge.gpu_clocks import Seen, Unloaded, lower_quartile
from evaluators.judge.gpu_cover import IDLE, Cover, CoverSearch, told
from evaluators.judge.gpu_looks import Looks, stir
from evaluators.judge.gpu_references import GpuReferences
from evaluators.judge.memory import SharedArea
from evaluators.judge.rounds import Lane
from evaluators.judge.stopwatch import (
    Pair,
    Timing,
    TimingPolicy,
    outpaced,
    ratio_interval,
    slowed,
    too_fast,
    widened,
)
from evaluators.judge.timed_data import TimedData
from evaluators.judge.wrong import refuse_if_wrong, timed_difference
from messages.tasks import TaskSpec
from messages.verdicts import Interval, Measured, Quarantined, Rejected, Unstable, Verdict, Wrong

CLOCK = "clock"
"""Rule by which a candidate is refused whose events do not agree with the judge's clock."""
_PREPARED_PAIRS = 16
_WARM_UPS, _LONG_NS = 5, 100_000_000
"""Calls before any is timed; of what takes so long, as few as can be."""
_BEFORE_SEARCH = 3
"""`torch.compile` records what it replays in the second one."""
_EMPTY_CALLS = 20
_UNLOADED_CALLS = 12
"""Behind each cover; what they are held against has a slack of 60 us."""
_GLANCES = 2
"""At a candidate that begins when the GPU is idle, and at one whose launches are hidden."""
GLANCED = 1.5
"""What a glance may be off by: few calls, in the process of the checks."""
_RECORDED_CALLS = 5
_FASTEST_MEMORY = 10e12
"""Bytes per second that no GPU's memory reaches: an H200 has 4.8e12, a B200 8e12."""
_BETWEEN_PROCESSES, _BETWEEN_PROCESSES_NS = 0.003, 100
"""What processes of the same program differ by for as long as they live: of 39 speedups of eight kernels (130 us to
2.6 ms) 33 lay within 0.2 % of their kernel's median, all within 0.33 % (docs/benchmarks/gpu_repeats.json); of two
kernels of 4 to 5 us all but one of eight within 0.1 us (docs/benchmarks.md)."""
_SLOWED, _SLOWED_WAITING = 1.2, 2.0
"""Reference slower than alone by this factor: something else works on the GPU. One that waits for the GPU in its midst
also waits for its core, whose speed may well change by a quarter in a second (seen on an H200's host)."""


class GpuWorkloadTimer:
    """What a judge of a GPU keeps for one workload between candidates, and what it knows of the one that is timed."""

    def __init__(
        self,
        bench: Bench,
        task: TaskSpec,
        baselines: list[GpuBaselineSide],
        awake: AwakeCores,
        cover: Cover,
        given: SharedArea,
        *,
        share: int,
    ) -> None:
        """Warm the baselines up and make the data for the first candidate.

        Args:
            bench: the workload's.
            task: for its tolerances.
            baselines: the eager reference, and perhaps a second one.
            awake: keeps the cores from sleeping meanwhile.
            cover: what every timed call begins behind.
            given: where the baselines' inputs lie. Other workloads' use the same memory.
            share: how many workloads share the memory for data.

        Raises:
            BaselineError: a baseline worker is broken.
        """
        self.bench = bench
        self._awake = awake
        self._cover = cover
        self._data = TimedData(bench.problem, task.tolerance, same_state=bench.returns_outputs, share=share)
        self._references = GpuReferences(baselines, given, bench.problem, cover, self._touch)
        self._references.warm_up(self._data.next(), self._warm_ups)
        self._copy_ns = self._references.copy_ns() if bench.returns_outputs else 0.0
        self._take_ns = self._time_taking()
        self._draws = Draws()
        self._calls: Calls | None = None
        """Of the candidate that is timed."""
        self._seen, self._looks = self._seen_of(Unloaded(self._take_ns)), Looks(cover.longest_gap_ns)
        self._data.prepare(_PREPARED_PAIRS)

    def _seen_of(self, unloaded: Unloaded) -> Seen:
        return Seen(unloaded, self._copy_ns, self._take_ns, reference_cover_us=self._references.cover_us)

    def _time_taking(self) -> float:
        """Return what the judge's own copy of outputs like these takes, in ns: part of every call, empty ones too."""
        took: list[int] = []
        for _ in range(_EMPTY_CALLS):
            self._touch(min(self._cover.levels))
            self.bench.buffers.settle()
            begun = time.perf_counter_ns()
            self.bench.buffers.take()
            took.append(time.perf_counter_ns() - begun)
        return lower_quartile(took)

    @property
    def _warm_ups(self) -> int:
        return 1 if self._is_long else _WARM_UPS

    @property
    def _is_long(self) -> bool:
        return self.bench.reference_ns > _LONG_NS

    def renew(self, *, is_timed_again: bool) -> None:
        """Make data anew that the last candidate saw: all of it, if the next one is the same."""
        if is_timed_again:
            self._data.replace(_PREPARED_PAIRS, is_hurried=True)
        else:
            self._data.prepare(_PREPARED_PAIRS)

    def time_unloaded(self, side: CandidateSide) -> Unloaded:
        """Find out what an empty call costs while the process is not the candidate's.

        Once for all workloads: nothing in an empty call is of one but the judge's own copy of outputs, which is known
        of each. Every further one would keep the GPU busy for a fifth of a second only to measure the same again.

        Raises:
            CandidateFailedError: it does not answer.
        """
        unloaded = Unloaded(self._take_ns)
        side.turn_to(self.bench.place)
        side.empty()
        with self._awake:
            for cover_us in self._cover.levels:
                for _ in range(_UNLOADED_CALLS):
                    self._touch(cover_us)
                    unloaded.add(cover_us, side.empty())
        return unloaded

    def glance(self, side: CandidateSide) -> Pair:
        """Return the least that any of a few calls of a candidate takes that is being checked, and the reference alone.

        Raises:
            CandidateFailedError: it does not answer, or takes too long.
            WrongOutputError: it writes beside its outputs.
        """
        calls, data = Calls(self.bench, side, is_timed=True), self._data.apart()
        calls.on(data)
        levels = (IDLE, max(self._cover.levels)) * _GLANCES
        candidate_ns = min(self._candidate_ns(calls, data.family, level) for level in levels)
        return Pair(candidate_ns=max(candidate_ns, 1), reference_ns=round(self._references.alone_ns))

    def pace(self, side: CandidateSide) -> float:
        """Return how many times as long as alone the reference takes now, beside whoever is at work on the GPU, or 1.

        Args:
            side: the candidate, which is not called.

        Raises:
            BaselineError: the baseline worker is broken.
        """
        side.turn_to(self.bench.place)
        self._references.lay(self._data.apart())
        now_ns = min(self._references.now_ns() for _ in range(_GLANCES))
        return max(now_ns / self._references.alone_ns, 1.0)

    def lane(self, side: CandidateSide, unloaded: Unloaded, search: CoverSearch, looks: Looks) -> Lane:
        """Return the pairs of a candidate on this workload; a module's instance is made when its first call comes.

        Args:
            side: the candidate.
            unloaded: empty calls of its process from before it was loaded, on whichever workload.
            search: finds what its calls are to begin behind, on all workloads.
            looks: between its calls, on all workloads.
        """
        calls, seen = Calls(self.bench, side, is_timed=True), self._seen_of(unloaded)
        self._calls, self._seen, self._looks, self._draws = calls, seen, looks, Draws()

        def run_pair(candidate_first: bool) -> Pair:
            data = self._data.next()
            if candidate_first:
                self._time_candidate(calls, data, seen)
            looks.look(self._stir)
            self._references.lay(data)
            self._references.time(seen)
            if not candidate_first:
                self._time_candidate(calls, data, seen)
            self._compare(data, calls)
            for _ in calls.elsewhere(data):
                self._refuse_if_different(data, calls)
            calls.look_after()
            self._touch(seen.cover_us)
            seen.add("empty call", side.empty())
            return Pair(candidate_ns=max(seen.candidate[-1], 1), reference_ns=max(seen.reference[-1], 1))

        return Lane(
            run_pair,
            lambda: self._enter(calls, search),
            begin=lambda: calls.on(self._data.next()),
            reference_ns=self.bench.reference_ns,
        )

    def _enter(self, calls: Calls, search: CoverSearch) -> None:
        """Warm both sides up: for the first time, or after pairs of another workload.

        Raises:
            CandidateFailedError: the candidate does not answer, or takes too long.
            WrongOutputError: it writes beside its outputs.
        """
        is_first, self._seen.is_entered = not self._seen.is_entered, True
        # One call was made, and searching makes further ones, on what lies there.
        most = (_BEFORE_SEARCH if search.hides else _WARM_UPS) - 1
        for _ in range(most if is_first and not self._is_long else 1):
            data = self._data.next()
            calls.on(data)
        if is_first:  # what it keeps for a set of addresses, it may make in the second call with them
            for _ in range(self.bench.buffers.places if not self._is_long else 1):
                calls.on(data)
        self._references.lay(data)
        self._references.eager.call()
        if is_first:
            self._seen.cover_us = search.best_for(lambda level: self._candidate_ns(calls, data.family, level))

    def record(self, side: CandidateSide) -> Iterator[bytes]:
        """Have some calls recorded, under the conditions of timed ones. Yields what was printed until each one's end.

        Raises:
            CandidateFailedError: the candidate does not answer.
            WrongOutputError: it writes beside its outputs.
        """
        calls, data = Calls(self.bench, side, is_timed=True), self._data.next()
        for _ in range(self._warm_ups):
            calls.on(data)
        best = self._cover.search().best_for(lambda level: self._candidate_ns(calls, data.family, level))
        # Launching takes longer while it is recorded.
        cover_us = IDLE if best == IDLE else max(self._cover.levels)
        for _ in range(_RECORDED_CALLS):
            yield calls.recorded(self._cover.over(cover_us))

    @property
    def is_doubtful(self) -> bool:
        """Whether the candidate's events are not to be believed."""
        return self._seen.is_doubtful

    @property
    def is_refused(self) -> bool:
        """Whether they are not, whatever is added to its time."""
        return self._seen.is_refused

    def begin_again(self) -> None:
        """Forget the pairs of the candidate that is timed, and make other data, of all kinds, for those that follow."""
        self._seen.repeat(longest_us=max(self._cover.levels))
        self._data.replace(_PREPARED_PAIRS)

    def _candidate_ns(self, calls: Calls, family: str, cover_us: int) -> int:
        calls.again(family, cover=self._cover.over(cover_us))
        return calls.last.span_ns

    def _time_candidate(self, calls: Calls, data: DataSet, seen: Seen) -> None:
        self._looks.look(self._stir)
        self.bench.buffers.lay(data.inputs, data.state)
        seen.candidate.append(self._candidate_ns(calls, data.family, seen.cover_us))
        seen.add("call", calls.last)

    def _stir(self) -> None:
        """Have other data of the same kind where the candidate has its inputs; all of it is laid anew then."""
        stir(self.bench.buffers.inputs.moving)
        self.bench.buffers.renew()

    def _touch(self, cover_us: int) -> None:
        """Do with the GPU what comes before a candidate's call, so that every call finds it in the same state."""
        self.bench.buffers.outputs.poison()
        self.bench.buffers.settle()
        self._cover.over(cover_us)()

    def _compare(self, data: DataSet, calls: Calls) -> None:
        """Compare the outputs of a timed call with the reference's of the same pair.

        Raises:
            WrongOutputError: they differ.
        """
        self._refuse_if_different(data, calls)
        if data.positions is not None:
            self._draws.add(data.positions([self.bench.buffers.results]))

    def _refuse_if_different(self, data: DataSet, calls: Calls) -> None:
        names, outputs, at = self.bench.output_names, self.bench.buffers.results, self.bench.buffers.arrangement
        refuse_if_wrong(
            lambda: timed_difference(names, outputs, self._references.outputs(), data), lambda: calls.on(data, at=at)
        )

    def conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        """Return what pairs come to."""
        seen = self._seen
        if timing.hopeless:
            return outpaced(timing, policy)
        if said := self._draws.complaint():
            return Wrong(reason=said, family="timed calls")
        refusal = self._doubt(timing, seen)
        if refusal is not None:
            return refusal
        factor = 1 + seen.added_share
        timing = slowed(timing, factor, is_certain=False)
        interval = timing.interval
        if said := self._looks.complaint():
            return Unstable(reason=said, speedup_interval=interval)
        longer = timing.reference_latency_us * 1000 / self._references.alone_ns
        is_waiting = self._references.may_wait and self.bench.problem.measure == "device"
        if longer > (_SLOWED_WAITING if is_waiting else _SLOWED):
            reason = f"the reference took {longer:.2f} times as long as alone: something else worked on the GPU"
            return Unstable(reason=reason, speedup_interval=interval)
        if timing.half_width > policy.unstable_half_width:
            reason = f"after {timing.pairs} pairs the speedup is only known to ±{timing.half_width:.0%}"
            return Unstable(reason=reason, speedup_interval=interval)
        measured = Measured(
            timed=True,
            latency_us=timing.latency_us,
            reference_latency_us=timing.reference_latency_us,
            speedup_vs_reference=timing.speedup,
            speedup_interval=widened(timing.interval, between_processes(timing.latency_us)),
            measure=self.bench.problem.measure,
            pairs=timing.pairs,
            notes=self._notes(seen),
        )
        return self._with_second(measured, seen, factor)

    def _doubt(self, timing: Timing, seen: Seen) -> Rejected | Quarantined | None:
        """Say why the candidate's own times are not believed, if so."""
        if seen.is_refused:
            return Rejected(reason=seen.complaint(timing.latency_us), rule=CLOCK)
        return too_fast(
            timing,
            tensor_bytes=self.bench.tensor_bytes,
            needed_bytes=lambda: self.bench.needed_bytes,
            bytes_per_s=_FASTEST_MEMORY,
        )

    def _with_second(self, measured: Measured, seen: Seen, factor: float) -> Measured:
        """Add what the second baseline says of a candidate that takes longer than its events say by a factor."""
        if self._references.second is None:
            return measured
        ratios = [math.log(second / own) for second, own in zip(seen.second, seen.candidate, strict=True)]
        middle, low, high = ratio_interval(ratios, may_do=True)
        interval = Interval(low=math.exp(low) / factor, high=math.exp(high))
        return msgspec.structs.replace(
            measured,
            baseline=self._references.second.kind,
            baseline_latency_us=median(seen.second) / 1000,
            speedup_vs_baseline=math.exp(middle) / factor,
            baseline_interval=widened(interval, between_processes(median(seen.candidate) / 1000)),
        )

    def _notes(self, seen: Seen) -> tuple[str, ...]:
        begins, reference_begins = told(seen.cover_us), told(self._references.cover_us)
        added_us = seen.added_share * median(seen.candidate) / 1000
        return (
            f"the L2 cache is overwritten before every timed call; the candidate's begin {begins}, the reference's "
            f"{reference_begins}",
            f"reference: eager torch {torch.__version__}, TF32 matmul {_say(torch.backends.cuda.matmul.allow_tf32)}, "
            f"TF32 convolution {_say(torch.backends.cudnn.allow_tf32)}",
            f"the judge's clock says {seen.beyond_ns[0] / 1000:+.1f} us beyond the events, "
            f"{seen.excess_ns('reference', 'empty reference')[0] / 1000:+.1f} us for the reference (lower quartiles)"
            + (f"; {added_us:.1f} us are added to its time for what goes beyond noise" if added_us else "")
            + (f"; all pairs were run {1 + seen.repeats} times" if seen.repeats else ""),
            self._looks.note(),
            *(self._calls.notes() if self._calls is not None else ()),
        )


def between_processes(latency_us: float) -> float:
    """Return by which share a call's latency may differ in another process."""
    return _BETWEEN_PROCESSES + _BETWEEN_PROCESSES_NS / 1000 / max(latency_us, _BETWEEN_PROCESSES_NS / 1000)


def _say(is_on: bool) -> str:
    return "on" if is_on else "off"
