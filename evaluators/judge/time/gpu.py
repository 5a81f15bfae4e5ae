"""Times candidates on a GPU: pairs with the references on fresh data, every output checked.

References have inputs of their own, in memory that no candidate maps.

Each side times its calls by events of the GPU; the judge's clock times each call from request to copied outputs. The
excess of that clock over a candidate's events, beyond the excess of empty calls, is added to the candidate's time, or
the candidate is refused. Empty calls are also answered by the candidate's process, so they are compared with empty
calls from before it was loaded. Doubted pairs are run again; then only the new pairs count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Protocol, TypeVar

import msgspec
import torch

from evaluators.judge.candidate.bench import Bench, Calls
from evaluators.judge.candidate.candidate import CandidateSide
from evaluators.judge.check.wrong import refuse_if_wrong, timed_difference, with_printed
from evaluators.judge.data.arena import SharedArea
from evaluators.judge.data.draws import Draws
from evaluators.judge.data.families import DataSet
from evaluators.judge.data.memory import make_areas
from evaluators.judge.protocol import Artifact
from evaluators.judge.reference.baseline import KEEP
from evaluators.judge.reference.gpu_baseline import DEVICE, GpuBaselineSide
from evaluators.judge.reference.problem import Problem, Tensors
from evaluators.judge.time.cores import AwakeCores
from evaluators.judge.time.gpu_clocks import Seen, Unloaded, lower_quartile
from evaluators.judge.time.gpu_cover import IDLE, Cover, CoverSearch, Looks, may_wait, stir, told
from evaluators.judge.time.sampling import Pair, Timing, TimingPolicy, about, ratio_interval, slowed, widened
from evaluators.judge.time.timing import Lane, OneWorkload, Rounds, TimedWorkloads, together
from evaluators.runners.base import EMPTY
from messages.commands import Purpose
from messages.tasks import TaskSpec
from messages.verdicts import Interval, Measured, Rejected, Unstable, Verdict

_EMPTY_CALLS = 20


class GpuReferences:
    """The eager reference, and possibly a second baseline."""

    def __init__(
        self,
        baselines: Sequence[GpuBaselineSide],
        given: SharedArea,
        problem: Problem,
        cover: Cover,
        touch: Callable[[int], None],
    ) -> None:
        """Begin without computing anything.

        `given` is the area of their inputs, `cover` precedes every timed call, and `touch` does the GPU work that comes
        before any call, given the length of the cover in us.
        """
        self._baselines = baselines
        self.eager, self.second = baselines[0], baselines[1] if len(baselines) > 1 else None
        self._given, self._problem = given, problem
        self._cover, self._touch = cover, touch
        self._covers_us: dict[GpuBaselineSide, int] = {}
        self.alone_ns = 0.0
        """Latency of the reference before any candidate ran."""

    def warm_up(self, data: DataSet, calls: int) -> None:
        """Compute for the first time, find the best cover for calls, and measure the reference."""
        self.lay(data)
        for side in self._baselines:
            side.attach(self._given, self._problem)
        for side in self._baselines:
            self._covers_us[side] = self._cover.search().best_for(partial(self._behind_ns, side))
        self.alone_ns = max(1.0, median(self.now_ns() for _ in range(calls)))

    @property
    def cover_us(self) -> int:
        """Length of the cover before calls of the reference, in us, or `IDLE`."""
        return self._covers_us[self.eager]

    @property
    def may_wait(self) -> bool:
        """True if the reference may wait for the GPU within a call."""
        return may_wait(self.cover_us, self.alone_ns)

    def lay(self, data: DataSet) -> None:
        """Write the inputs of the following calls: all of them, since another workload's may be there."""
        self._given.forget()
        self._given.fill((*data.inputs, *data.state))
        self._given.settle()

    def now_ns(self) -> int:
        """Return the current latency of the reference on these inputs."""
        return self._behind_ns(self.eager, self.cover_us)

    def time(self, seen: Seen) -> None:
        """Time a call of each on these inputs, and an empty one of the reference."""
        self._touch(self.cover_us)
        answer = self.eager.call()
        seen.reference.append(answer.span_ns)
        seen.add("reference", answer)
        self._touch(self.cover_us)
        seen.add("empty reference", self.eager.empty())
        if self.second is not None:
            seen.second.append(self._behind_ns(self.second, self._covers_us[self.second]))

    def copy_ns(self) -> float:
        """Return the time for copying outputs like the reference's."""
        copies = [self.eager.ask(KEEP).elapsed_ns for _ in range(_EMPTY_CALLS)]
        nothing = [self.eager.empty().elapsed_ns for _ in range(_EMPTY_CALLS)]
        return max(0.0, lower_quartile(copies) - lower_quartile(nothing))

    def outputs(self) -> Tensors:
        """Return the result of the reference's last call; valid until the next."""
        return self.eager.keep()

    def _behind_ns(self, side: GpuBaselineSide, cover_us: int) -> int:
        self._touch(cover_us)
        return side.call().span_ns


_REPEATS, _REPEATING_S = 2, 5.0
"""Most repetitions of a workload's pairs, and seconds after which no further one begins. Each time a small lie may pass
for noise, so there are few."""


class Doubted(Protocol):
    """Timer of one workload."""

    @property
    def is_doubtful(self) -> bool:
        """True if the candidate's events are not to be believed."""

    @property
    def is_refused(self) -> bool:
        """True if they are not, whatever is added to its time."""

    def begin_again(self) -> None:
        """Drop its pairs."""


def settle_doubts(timers: Sequence[Doubted], run_again: Callable[[int, Rounds], Rounds], rounds: Rounds) -> Rounds:
    """Run pairs of each doubted workload again. Returns the rounds that count; the first refused workload decides."""
    if rounds.together.hopeless:
        return rounds
    for number, timer in enumerate(timers):
        begun, repeats = time.perf_counter(), 0
        while timer.is_doubtful:
            if repeats == _REPEATS or (repeats and time.perf_counter() - begun > _REPEATING_S):
                break
            timer.begin_again()
            rounds = run_again(number, rounds)
            repeats += 1
            if rounds.together.hopeless:
                return rounds
        if timer.is_refused:
            return rounds
    return rounds


CLOCK = "clock"
"""Rule that refuses a candidate with events that disagree with the judge's clock."""
_PREPARED_PAIRS = 16
_WARM_UPS, _LONG_NS = 5, 100_000_000
"""Calls before any is timed; calls longer than this get the fewest possible."""
_BEFORE_SEARCH = 3
"""`torch.compile` records in its second call what it replays later."""
_UNLOADED_CALLS = 12
"""Empty calls behind each cover; they are compared with a slack of 60 us."""
_GLANCES = 2
"""Calls for a candidate that begins on an idle GPU, and for one with hidden launches."""
GLANCED = 1.5
"""Error factor of a glance, which is a few calls in the process of the checks."""
_RECORDED_CALLS = 5
_BETWEEN_PROCESSES, _BETWEEN_PROCESSES_NS = 0.003, 100
"""Difference between processes of the same program: of 39 speedups of eight kernels (130 us to 2.6 ms) 33 were within
0.2 % of their kernel's median, all within 0.33 % (docs/benchmarks/gpu_repeats.json); for two kernels of 4 to 5 us all
but one of eight within 0.1 us (docs/benchmarks.md)."""
_SLOWED, _SLOWED_WAITING = 1.2, 2.0
"""Factor of the reference over its time alone above which something else works on the GPU. A reference that waits for
the GPU within a call also waits for its core, which may change its speed by a quarter within a second (seen on an
H200's host)."""


class GpuWorkloadTimer(OneWorkload):
    """A GPU judge's data of one workload, and its state about the candidate that is timed."""

    fastest_memory = 10e12  # an H200 has 4.8e12, a B200 8e12

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
        super().__init__(bench, task, share=share)
        self._awake = awake
        self._cover = cover
        self._references = GpuReferences(baselines, given, bench.problem, cover, self._touch)
        self._is_long = bench.reference_ns > _LONG_NS
        self._warm_ups = 1 if self._is_long else _WARM_UPS
        self._references.warm_up(self._data.next(), self._warm_ups)
        self._copy_ns = self._references.copy_ns() if bench.returns_outputs else 0.0
        self._take_ns = self._time_taking()
        self._seen, self._looks = self._seen_of(Unloaded(self._take_ns)), Looks(cover.longest_gap_ns)
        self._data.prepare(_PREPARED_PAIRS)

    def _seen_of(self, unloaded: Unloaded) -> Seen:
        return Seen(unloaded, self._copy_ns, self._take_ns, reference_cover_us=self._references.cover_us)

    def _time_taking(self) -> float:
        """Return the time of the judge's own copy of such outputs, in ns, which is part of every call."""
        took: list[int] = []
        for _ in range(_EMPTY_CALLS):
            self._touch(min(self._cover.levels))
            self.bench.buffers.settle()
            begun = time.perf_counter_ns()
            self.bench.buffers.take()
            took.append(time.perf_counter_ns() - begun)
        return lower_quartile(took)

    def renew(self, *, is_timed_again: bool) -> None:
        """Renew data that the last candidate saw: all of it, if the next one is the same."""
        if is_timed_again:
            self._data.replace(_PREPARED_PAIRS, is_hurried=True)
        else:
            self._data.prepare(_PREPARED_PAIRS)

    def time_unloaded(self, side: CandidateSide) -> Unloaded:
        """Measure empty calls while the process contains no candidate code.

        Once for all workloads: only the judge's own copy of outputs differs between them, and its time is known for
        each. Each further measurement would keep the GPU busy for a fifth of a second without new information.
        """
        unloaded = Unloaded(self._take_ns)
        side.turn_to(self.bench.place)
        side.ask(EMPTY)
        with self._awake:
            for cover_us in self._cover.levels:
                for _ in range(_UNLOADED_CALLS):
                    self._touch(cover_us)
                    unloaded.add(cover_us, side.ask(EMPTY))
        return unloaded

    def glance(self, side: CandidateSide) -> Pair:
        """Return the shortest of a few calls of a candidate that is being checked, and the reference alone."""
        calls, data = Calls(self.bench, side, is_timed=True), self._data.apart()
        calls.on(data)
        levels = (IDLE, max(self._cover.levels)) * _GLANCES
        candidate_ns = min(self._candidate_ns(calls, data.family, level) for level in levels)
        return Pair(candidate_ns=max(candidate_ns, 1), reference_ns=round(self._references.alone_ns))

    def pace(self, side: CandidateSide) -> float:
        """Return the reference's slowdown beside other work on the GPU, relative to its time alone; at least 1."""
        side.turn_to(self.bench.place)
        self._references.lay(self._data.apart())
        now_ns = min(self._references.now_ns() for _ in range(_GLANCES))
        return max(now_ns / self._references.alone_ns, 1.0)

    def lane(self, side: CandidateSide, unloaded: Unloaded, search: CoverSearch, looks: Looks) -> Lane:
        """Return the pairs of a candidate on this workload; a module's instance is made with its first call.

        `unloaded` are empty calls of its process from before it was loaded; search and looks span all workloads.
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
            self._see_outputs(data, calls)
            self._touch(seen.cover_us)
            seen.add("empty call", side.ask(EMPTY))
            return Pair(candidate_ns=max(seen.candidate[-1], 1), reference_ns=max(seen.reference[-1], 1))

        return self._lane(run_pair, lambda: self._enter(calls, search), calls)

    def _enter(self, calls: Calls, search: CoverSearch) -> None:
        """Warm both sides up, for the first time or after pairs of another workload."""
        is_first, self._seen.is_entered = not self._seen.is_entered, True
        # One call was made, and the search makes further ones on the same data.
        most = (_BEFORE_SEARCH if search.hides else _WARM_UPS) - 1
        for _ in range(most if is_first and not self._is_long else 1):
            data = self._data.next()
            calls.on(data)
        if is_first:  # it may make its cache for a set of addresses in the second call with them
            for _ in range(self.bench.buffers.places if not self._is_long else 1):
                calls.on(data)
        self._references.lay(data)
        self._references.eager.call()
        if is_first:
            self._seen.cover_us = search.best_for(lambda level: self._candidate_ns(calls, data.family, level))

    def record(self, side: CandidateSide) -> Iterator[bytes]:
        """Record some calls under the conditions of timed ones. Yields the output until the end of each."""
        calls, data = Calls(self.bench, side, is_timed=True), self._data.next()
        for _ in range(self._warm_ups):
            calls.on(data)
        best = self._cover.search().best_for(lambda level: self._candidate_ns(calls, data.family, level))
        # Recording makes launches slower.
        cover_us = IDLE if best == IDLE else max(self._cover.levels)
        for _ in range(_RECORDED_CALLS):
            yield calls.recorded(self._cover.over(cover_us))

    @property
    def is_doubtful(self) -> bool:
        """True if the candidate's events are not to be believed."""
        return self._seen.is_doubtful

    @property
    def is_refused(self) -> bool:
        """True if they are not, whatever is added to its time."""
        return self._seen.is_refused

    def begin_again(self) -> None:
        """Drop the pairs of the timed candidate, and make other data, of all kinds, for the next ones."""
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
        """Put other data of the same kind where the candidate has its inputs; all of it is written again afterwards."""
        stir(self.bench.buffers.inputs.moving)
        self.bench.buffers.renew()

    def _touch(self, cover_us: int) -> None:
        """Do the GPU work that precedes a candidate's call, so that every call finds the GPU in the same state."""
        self.bench.buffers.outputs.poison()
        self.bench.buffers.settle()
        self._cover.over(cover_us)()

    def _refuse_if_different(self, data: DataSet, calls: Calls) -> None:
        names, outputs, at = self.bench.output_names, self.bench.buffers.results, self.bench.buffers.arrangement
        refuse_if_wrong(
            lambda: timed_difference(names, outputs, self._references.outputs(), data), lambda: calls.on(data, at=at)
        )

    def conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        """Return the verdict that follows from pairs."""
        seen = self._seen
        if found := self._slow_or_wrong(timing, policy):
            return found
        if seen.is_refused:
            return Rejected(reason=seen.complaint(timing.latency_us), rule=CLOCK)
        if doubt := self._too_fast(timing):
            return doubt
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
        if uncertain := self._uncertain(timing, policy):
            return uncertain
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

    def _with_second(self, measured: Measured, seen: Seen, factor: float) -> Measured:
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
    """Return the relative difference of a call's latency to expect in another process."""
    return _BETWEEN_PROCESSES + _BETWEEN_PROCESSES_NS / 1000 / max(latency_us, _BETWEEN_PROCESSES_NS / 1000)


def _say(is_on: bool) -> str:
    return "on" if is_on else "off"


_Read = TypeVar("_Read")

POLICIES: dict[Purpose, TimingPolicy] = {
    "screen": TimingPolicy(
        min_pairs=16,
        # Four blocks: the fewest with an interval.
        min_pairs_of_several=8,
        long_ns=10e6,
        max_pairs=100,
        lease_s=1.0,
        stretched_lease_s=3.0,
        more_time=0.1,
        half_width=0.005,
    ),
    "confirm": TimingPolicy(
        min_pairs=40, min_pairs_of_several=20, max_pairs=300, lease_s=4.0, stretched_lease_s=6.0, half_width=0.003
    ),
}


class GpuTimer:
    """Times candidates of one task that passed their checks, one after the other."""

    def __init__(
        self,
        benches: Sequence[Bench],
        task: TaskSpec,
        baselines: Sequence[list[GpuBaselineSide]],
        awake: AwakeCores,
    ) -> None:
        self._benches = benches
        self._awake = awake
        timed = [bench for bench in benches if not bench.is_hidden]
        self._cover = cover = Cover(task.rules.measure)
        # No candidate maps these.
        layouts = [[spec for spec in bench.problem.tensors if spec.role != "output"] for bench in timed]
        given = make_areas("given", layouts, device=DEVICE, guarded=False)
        self._workloads = TimedWorkloads(
            GpuWorkloadTimer(bench, task, sides, awake, cover, area, share=len(timed))
            for bench, sides, area in zip(timed, baselines, given, strict=True)
        )
        self._timers = self._workloads.timers
        self._last = ""
        """Product that was timed last."""

    def time(self, artifact: Artifact, purpose: Purpose, keep_above: float | None = None) -> Verdict:
        """Time one candidate."""
        policy = msgspec.structs.replace(POLICIES[purpose], keep_above=keep_above)
        verdict = self._timed(artifact, policy)
        if not (isinstance(verdict, Rejected) and verdict.rule == CLOCK):
            return verdict
        # A busy host may also keep a process from answering when its GPU is done, but seldom twice. Work beside its
        # events repeats.
        again = self._timed(artifact, policy)
        note = f"timed once more in another process, since in the first one {verdict.reason}"
        return msgspec.structs.replace(again, notes=(*again.notes, note)) if isinstance(again, Measured) else again

    def glance(self, side: CandidateSide, keep_above: float) -> Verdict | None:
        """Time a candidate that is being checked, to find whether it is hopelessly slow. None: it is not."""
        found = self._workloads.attempt(lambda: self._glanced(side, keep_above))
        if not isinstance(found, Rounds):
            return found
        policy = msgspec.structs.replace(POLICIES["screen"], keep_above=keep_above)
        is_hopeless = found.together.interval.high < keep_above
        return self._workloads.given_up(found, policy) if is_hopeless else None

    def _glanced(self, side: CandidateSide, keep_above: float) -> Rounds:
        pairs = []
        with self._awake:
            for timer in self._timers:
                self._workloads.turn_to(timer)
                pairs.append(timer.glance(side))
            found = _about(pairs)
            if found.together.interval.high < keep_above:
                # Another process may be working on the GPU. The middle workload, since a short call may fall between
                # its turns.
                found = _about(pairs, self._timers[len(self._timers) // 2].pace(side))
        return found

    def _timed(self, artifact: Artifact, policy: TimingPolicy) -> Verdict:
        with self._workloads.first.bench.side(artifact, others=self._benches) as side:
            # While the process starts.
            for timer in self._timers:
                timer.renew(is_timed_again=artifact.product == self._last)
            self._last = artifact.product
            rounds = self._workloads.attempt(lambda: self._rounds(side, policy))
            printed = side.printed
        verdict = self._workloads.conclude(rounds, policy) if isinstance(rounds, Rounds) else rounds
        return with_printed(verdict, printed)

    def record(self, artifact: Artifact, cupti: str, read: Callable[[bytes], _Read]) -> dict[str, list[_Read]]:
        """Record calls of a candidate. Returns what was read of each, by workloads."""
        with self._workloads.first.bench.side(artifact, others=self._benches, cupti=cupti) as side:
            side.load()
            with self._awake:
                return {timer.bench.workload: [read(each) for each in timer.record(side)] for timer in self._timers}

    def _rounds(self, side: CandidateSide, policy: TimingPolicy) -> Rounds:
        unloaded, search = self._workloads.first.time_unloaded(side), self._cover.search()
        looks = Looks(self._cover.longest_gap_ns, is_alone=self._cover.is_alone)
        side.load()
        lanes = [self._workloads.lane(timer, timer.lane(side, unloaded, search, looks)) for timer in self._timers]
        with self._awake:
            rounds = self._workloads.run(side, lanes, policy)
            run_again = partial(self._workloads.run_again, side, lanes, policy)
            return settle_doubts(self._timers, run_again, rounds)


def _about(pairs: Sequence[Pair], pace: float = 1.0) -> Rounds:
    """Return the rounds that glances amount to, if references now take `pace` times as long."""
    timings = tuple(slowed(about(pair, GLANCED), 1 / pace) for pair in pairs)
    return Rounds(timings=timings, together=together(timings))


def is_healthy() -> bool:
    """Return True if the GPU still computes for this process."""
    try:
        return int(torch.ones(1024, device=DEVICE).sum()) == 1024
    except RuntimeError:
        return False
