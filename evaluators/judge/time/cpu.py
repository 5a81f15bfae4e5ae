"""Times candidates on a CPU: pairs with the reference on fresh data, every output checked.

A timing judge works alone on its device, under the lease; checks and compilers have low priority meanwhile. If the task
gives a number of threads, both sides are bound to the same, quietest cores, and the judge to the others.

A candidate cannot start early: its threads are stopped before the next inputs are written, and a candidate that has
started another process is rejected. Each workload has its own reference; one process of the candidate serves all.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import torch

from evaluators.judge.candidate.bench import Bench, Calls
from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.check.wrong import refuse_if_wrong, timed_difference, with_printed
from evaluators.judge.data.draws import Draws
from evaluators.judge.data.families import GIVEN, DataSet
from evaluators.judge.protocol import Artifact
from evaluators.judge.reference.baseline import FEW_PAGES, BaselineSide
from evaluators.judge.time.cores import AwakeCores, CoreShare, pin, quietest_cores, thread_elsewhere
from evaluators.judge.time.disturbance import (
    LOOKING_NS,
    STOPPING_NS,
    WAITING_NS,
    Control,
    Sample,
    Usual,
    Watch,
    stat_fields,
)
from evaluators.judge.time.sampling import POLICIES, CacheSweeper, Pair, Timing, TimingPolicy, floored, net_ns, widened
from evaluators.judge.time.timing import Lane, OneWorkload, Rounds, TimedWorkloads
from evaluators.judge.time.urgency import is_permitted
from evaluators.process.guard import descendants_of
from evaluators.process.sandbox import seccomp
from evaluators.runners.base import EMPTY
from messages.commands import Purpose
from messages.tasks import TaskSpec
from messages.verdicts import Interval, Measured, Rejected, Unstable, Verdict

_PREPARED_PAIRS = 24
_OWN_DATA = 2
"""Data sets that no candidate sees."""
_EMPTY_CALLS = 15
EMPTY_S = 30.0
_SURE_SHARE = 0.5
"""Share of an empty call. A call that exceeds it by less is the difference of two large numbers."""
_GROWTH_SHARE = 0.1
"""Share of timed calls up to which new memory for the reference has no effect on medians."""
_BETWEEN_PROCESSES = 0.02
"""Least relative difference between two processes of the same program. A reference's own program as a module, 21
evaluations: 0.97 to 1.04."""
_BETWEEN_PROCESSES_OF_SMALL_PAGES = 0.15
"""The same without huge pages: up to 29 %, see `evaluators/runners/base.py`."""
_NOISE_BETWEEN, _NOISE_PAIRS = 2.4, 40
"""Noise between calls is also noise between processes: the factor is relative to the interval of this many pairs, which
further pairs narrow only for their own process. Of 50 evaluations by ten judges beside a busy core, for a kernel that
moves memory, 92 % of the intervals contain the median of the judge before, on a quiet host; with 0.8, which was enough
for the same judge, 70 % (docs/benchmarks/evaluator_cpu_judges.json)."""
_COPIES = 8
_WARM_UPS, _WARM_UP_S = 14, 2.0
"""Warm-up calls and seconds for candidates that allocate outputs, which are slow until their heap has grown."""
_STOPPED_LATE = "it went on for a while after its answer"

_LONGEST_SPIN_S = 0.03
_LOOK_EVERY_S = 0.0005


class Ground:
    """The cores on which a timing judge's sides run."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.cores = frozenset(os.sched_getaffinity(0))
        """Cores of both sides."""
        self._goes_before = False
        """True if sides preempt other processes in timed calls."""
        self._sweeper = CacheSweeper()

    @property
    def swept(self) -> str:
        """Return a description of the cache flush before every timed call, and of what it leaves in the caches."""
        sweeper = self._sweeper
        read = f"{sweeper.size_bytes >> 20} MiB are read {sweeper.passes} times before every timed call"
        if sweeper.size_bytes > sweeper.cache_bytes:
            return f"{read}: caches begin cold"
        return f"{read}, of {sweeper.cache_bytes >> 20} MiB of last-level caches: what lies in the rest may be warm"

    @contextmanager
    def placed(self, baselines: Sequence[BaselineSide]) -> Iterator[None]:
        """Bind the references to the quietest cores and the judge to the others, if the task gives their number."""
        everywhere = frozenset(os.sched_getaffinity(0))
        if not self.threads:
            yield
            return
        self.cores = quietest_cores(self.threads, among=everywhere)
        for baseline in baselines:
            pin(baseline.pid, self.cores)
        pin(os.getpid(), everywhere - self.cores or everywhere)
        try:
            yield
        finally:
            pin(os.getpid(), everywhere)

    @contextmanager
    def hurried(self, baselines: Sequence[BaselineSide]) -> Iterator[bool]:
        """Raise the priority of both sides and of the judge during timed calls. Yields whether the system permits it.

        Only the judge's main thread is raised: its OpenMP threads, which flush caches and compare, must not outrank the
        sides.
        """
        self._goes_before = is_permitted()
        for baseline in baselines:
            baseline.hurry(first=self._goes_before)
        try:
            yield self._goes_before
        finally:
            self._goes_before = False
            for baseline in baselines:
                baseline.hurry(first=False)

    def join(self, side: CandidateSide) -> None:
        """Place a candidate on the reference's cores, with the same priority."""
        if self.threads:
            pin(side.pid, self.cores)
        side.hurry(first=self._goes_before)

    def refuse_elsewhere(self, side: CandidateSide) -> None:
        """Check that all threads of a candidate are bound to its cores, if the task gives their number."""
        if self.threads and (refusal := thread_elsewhere(side.pid, self.cores)):
            raise CandidateFailedError(Rejected(reason=refusal, rule="threads"))

    def sweep(self) -> None:
        """Flush the last-level cache, and the private caches of the sides' core."""
        if not self.threads:
            self._sweeper.sweep()
        else:
            own = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self.cores)
            self._sweeper.sweep()
            os.sched_setaffinity(0, own)
        if not self._goes_before:
            _wait_for_own_threads()


def _wait_for_own_threads() -> None:
    """Wait briefly until no other thread of this process runs or wants a core.

    Idle OpenMP threads spin, for 7 ms where it was measured, and would keep a core from a side with threads on all
    cores.
    """
    until = time.monotonic() + _LONGEST_SPIN_S
    while _others_run() and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)


def _others_run() -> bool:
    own = str(threading.get_native_id())
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            if thread.name != own and stat_fields(thread / "stat")[0] == "R":
                return True
    return False


class WorkloadTimer(OneWorkload):
    """A timing judge's data of one workload, and its state about the candidate that is timed."""

    fastest_memory = 2e12  # two sockets with twelve channels each give half of it

    def __init__(self, bench: Bench, task: TaskSpec, baseline: BaselineSide, ground: Ground, *, share: int) -> None:
        super().__init__(bench, task, share=share)
        self.baseline = baseline
        self._ground = ground
        self._grown = 0
        """Number of timed calls in which the reference was given new memory."""
        self._floor_us = 0.0
        """Least latency that is credited to the candidate."""
        self._share: CoreShare | None = None
        self._waiting, self._stopping = Usual(WAITING_NS), Usual(STOPPING_NS)
        self._control = Control(self._time_reference_between)
        self._own_data = [self._data.next() for _ in range(_OWN_DATA)]
        first = self._own_data[0]
        bench.buffers.renew()
        bench.buffers.lay(first.inputs, first.state)
        baseline.attach(bench.buffers.inputs, bench.problem)
        self._data.prepare(_PREPARED_PAIRS)

    def renew(self) -> None:
        """Make data ready for the next candidate."""
        self._data.prepare(_PREPARED_PAIRS)

    def check(self) -> str:
        """Measure empty calls, and the reference against itself. Returns why timing is not possible now."""
        self.bench.buffers.renew()
        empty = [self.baseline.ask(EMPTY, limit_s=EMPTY_S).elapsed_ns for _ in range(_EMPTY_CALLS)]
        self.baseline.empty_ns = min(empty)
        return self._control.check()

    def slowed(self, timing: Timing) -> str:
        """Return a complaint if the candidate slowed the reference down. The candidate must be dead."""
        self.bench.buffers.renew()
        return self._control.slowed(timing.reference_latency_us)

    def excess(self) -> str:
        """Return a complaint if the candidate used more CPU time than its cores have."""
        return self._share.excess() if self._share is not None else ""

    def lane(self, side: CandidateSide) -> Lane:
        """Return the pairs of a candidate on this workload."""
        calls = self._calls = Calls(self.bench, side, is_timed=True)

        def run_pair(candidate_first: bool) -> Pair:
            return self._pair(side, calls, candidate_first=candidate_first)

        self._share, self._grown, self._draws = None, 0, Draws()
        return self._lane(run_pair, lambda: self._enter(side, calls), calls)

    def _enter(self, side: CandidateSide, calls: Calls) -> None:
        """Warm both sides up, for the first time or after pairs of another workload."""
        is_first = self._share is None
        data = self._data.next()
        for _ in range(self.bench.buffers.places - 1 if is_first else 1):
            calls.on(data)
        self.baseline.call(limit_s=self.bench.evaluation_limit_s)
        if not is_first:
            return
        self._floor_us = side.empty_ns / 1000 * _SURE_SHARE
        if self.bench.returns_outputs:
            _warm_up(calls, GIVEN)
            limit_s = self.bench.evaluation_limit_s
            calls.copy_ns = _copy_cost_ns(self.baseline, self._ground.sweep, limit_s=limit_s)
        # Once more, since loaded code may have started and moved threads.
        self._ground.join(side)
        is_kept = seccomp.NAME in side.isolation
        self._share = CoreShare(side.pid, len(self._ground.cores) if self._ground.threads and not is_kept else 0)

    def _pair(self, side: CandidateSide, calls: Calls, *, candidate_first: bool) -> Pair:
        data = self._data.next()
        side.expect_alone()
        self.bench.buffers.lay(data.inputs, data.state)
        before = None if candidate_first else self._time_reference()
        candidate = self._time_candidate(side, calls, data)
        reference = before or self._time_reference()
        self._see_outputs(data, calls)
        return Pair(
            candidate_ns=candidate.net_ns,
            reference_ns=reference.net_ns,
            disturbance=candidate.disturbance or reference.disturbance,
            is_own=bool(candidate.disturbance) and not reference.disturbance,
        )

    def _time_candidate(self, side: CandidateSide, calls: Calls, data: DataSet) -> Sample:
        watch, share = Watch(side.pid, self._ground.cores, self._waiting), self._share

        def just_before() -> None:
            self._ground.sweep()
            self._ground.refuse_elsewhere(side)
            watch.begin()
            if share is not None:
                share.begin()

        net_ns = calls.again(data.family, just_before=just_before)
        self._ground.refuse_elsewhere(side)
        last = calls.last
        looking_ns = LOOKING_NS if self.bench.buffers.glimpse is not None else 0
        late_ns = max(0, last.after_ns - looking_ns - self._stopping.most_ns)
        # The whole call: the cost of copying a module's outputs is subtracted from its latency, but its process used
        # it.
        taken_ns = last.elapsed_ns + late_ns
        if share is not None:
            share.end(taken_ns)
        disturbance = watch.end(taken_ns)
        if late_ns:
            # How much of its work lies between its answer and its stop is not known.
            disturbance = disturbance or _STOPPED_LATE
        return Sample(net_ns=net_ns + late_ns, disturbance=disturbance)

    def _time_reference(self) -> Sample:
        watch = Watch(self.baseline.pid, self._ground.cores, self._waiting)
        self._ground.sweep()
        pages = self.baseline.page_faults()
        watch.begin()
        answer = self.baseline.call(limit_s=self.bench.evaluation_limit_s)
        disturbance = watch.end(answer.elapsed_ns)
        self._waiting.add(watch.waited_ns)
        self._stopping.add(answer.after_ns)
        self._grown += self.baseline.page_faults() - pages > FEW_PAGES
        return Sample(net_ns=net_ns(answer.elapsed_ns, self.baseline.empty_ns), disturbance=disturbance)

    def _time_reference_between(self) -> Sample:
        """Time the reference under the conditions between two of its calls in pairs, without the candidate's call.

        Back to back it would be a third faster: new inputs come from the judge's core, outputs are copied, processes
        are listed, and caches are flushed once for each side.
        """
        descendants_of(os.getpid())
        self._own_data.reverse()
        self.bench.buffers.lay(self._own_data[0].inputs, self._own_data[0].state)
        self.bench.buffers.outputs.poison()
        self._ground.sweep()
        sample = self._time_reference()
        self.baseline.keep()
        return sample

    def _refuse_if_different(self, data: DataSet, calls: Calls) -> None:
        names, outputs = self.bench.output_names, self.bench.buffers.results
        refuse_if_wrong(
            lambda: timed_difference(names, outputs, self.baseline.keep(), data), lambda: calls.again(data.family)
        )

    def conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        """Return the verdict that follows from pairs."""
        interval = timing.interval
        if found := self._slow_or_wrong(timing, policy) or self._too_fast(timing):
            return found
        if timing.is_chosen:
            reason = (
                f"{timing.own_discards} of {len(timing.discarded)} disturbed pairs were so for what kept the candidate "
                f"alone from running, or had it go on: it may choose what is measured; the last: {timing.discarded[-1]}"
            )
            return Unstable(reason=reason, speedup_interval=interval)
        if timing.is_disturbed:
            reason = (
                f"{len(timing.discarded)} of {timing.pairs} pairs were disturbed, as far as that can be seen from "
                f"outside; the last one: {timing.discarded[-1]}"
            )
            return Unstable(reason=reason, speedup_interval=interval)
        if uncertain := self._uncertain(timing, policy):
            return uncertain
        sure = floored(timing, self._floor_us)
        own = _BETWEEN_PROCESSES if self.baseline.has_huge_pages() else _BETWEEN_PROCESSES_OF_SMALL_PAGES
        return Measured(
            timed=True,
            latency_us=sure.latency_us,
            reference_latency_us=sure.reference_latency_us,
            speedup_vs_reference=sure.speedup,
            speedup_interval=widened(sure.interval, max(between_processes(timing, own), self._control.bias)),
            pairs=timing.pairs,
        )

    def notes(self, timing: Timing) -> list[str]:
        """Return the notes for a verdict on how it was timed."""
        notes = [*self._control.notes, *(self._calls.notes() if self._calls is not None else ())]
        if not self.baseline.has_huge_pages():
            notes.append(
                "the kernel gives no huge pages on request: which pages a process was given may make it up to a "
                "quarter slower than another, and the interval is wider for that"
            )
        if self.bench.problem.needs_stage:
            notes.append(
                "the reference names a GPU on its way, which here means the CPU: finding that out is part of its time, "
                "so the speedup is too high"
            )
        if timing.discarded:
            notes.append(
                f"disturbed pairs that were run again: {len(timing.discarded)}; the last: {timing.discarded[-1]}"
            )
        if timing.latency_us < self._floor_us:
            notes.append(
                f"a call takes {timing.latency_us:.1f} us less an empty call, and that is less than half of one: "
                f"reported as {self._floor_us:.1f} us, which is sure"
            )
        if self._grown > _GROWTH_SHARE * timing.pairs:
            notes.append(
                f"in {self._grown} of {timing.pairs} timed calls the reference was given new memory, which costs time"
            )
        return notes


def between_processes(timing: Timing, usual: float) -> float:
    """Return the relative difference to expect between processes of the same program, on a host with this noise."""
    # The interval of pairs shrinks with the square root of their number.
    noise = timing.half_width * math.sqrt(max(1.0, timing.pairs / _NOISE_PAIRS))
    return max(usual, _NOISE_BETWEEN * noise)


def _copy_cost_ns(baseline: BaselineSide, sweep: Callable[[], None], *, limit_s: float) -> int:
    """Return the least time for copying the reference's outputs, with only them in the caches.

    The runner of a candidate that returns its outputs copies them in the call, which the reference does not do. So this
    cost is subtracted, at most `COPY_SHARE` of a call, since a candidate could have avoided the copy.
    """
    costs: list[int] = []
    for _ in range(_COPIES):
        sweep()
        baseline.call(limit_s=limit_s)
        costs.append(baseline.keep_ns())
    return max(0, min(costs) - baseline.empty_ns)


def _warm_up(calls: Calls, family: str) -> None:
    """Call a candidate on the contents of the buffers until its heap stops growing."""
    deadline = time.monotonic() + _WARM_UP_S
    for _ in range(_WARM_UPS):
        if time.monotonic() > deadline:
            return
        calls.again(family)


_UNKNOWN = Interval(low=0.0, high=0.0)
"""Interval of a candidate that was not timed."""


class Timer:
    """Times candidates of one task that passed their checks, one after the other."""

    def __init__(
        self, benches: Sequence[Bench], task: TaskSpec, baselines: Sequence[BaselineSide], awake: AwakeCores
    ) -> None:
        self._benches = benches
        self._baselines = baselines
        self._awake = awake
        self._ground = Ground(task.rules.threads)
        timed = [bench for bench in benches if not bench.is_hidden]
        self._workloads = TimedWorkloads(
            WorkloadTimer(bench, task, baseline, self._ground, share=len(timed))
            for bench, baseline in zip(timed, baselines, strict=True)
        )
        self._timers = self._workloads.timers

    def time(self, artifact: Artifact, purpose: Purpose, keep_above: float | None = None) -> Verdict:
        """Time one candidate."""
        policy = msgspec.structs.replace(POLICIES[purpose], keep_above=keep_above)
        ground, baselines, named = self._ground, self._baselines, self._workloads.named
        with ground.placed(baselines), ground.hurried(baselines) as is_privileged, self._awake:
            for timer in self._timers:
                if unfit := timer.check():
                    return named(Unstable(reason=unfit, speedup_interval=_UNKNOWN), timer)
            with self._workloads.first.bench.side(artifact, others=self._benches) as side:
                rounds = self._workloads.attempt(lambda: self._rounds(side, policy))
                printed = side.printed
            if not isinstance(rounds, Rounds):
                return with_printed(rounds, printed)
            # A candidate that was given up gets no credit, so its effect on the reference does not matter.
            for timer, timing in () if rounds.together.hopeless else zip(self._timers, rounds.timings, strict=False):
                if slowed := timer.slowed(timing):
                    return named(Unstable(reason=slowed, speedup_interval=timing.interval), timer)
        verdict = with_printed(self._workloads.conclude(rounds, policy), printed)
        if isinstance(verdict, Measured):
            return msgspec.structs.replace(verdict, notes=self._notes(rounds, is_privileged=is_privileged))
        return verdict

    def renew(self) -> None:
        """Make data ready for the next candidate."""
        for timer in self._timers:
            timer.renew()

    def _rounds(self, side: CandidateSide, policy: TimingPolicy) -> Rounds:
        self._ground.join(side)
        side.ask(EMPTY, limit_s=EMPTY_S)
        side.load()
        lanes = [self._workloads.lane(timer, timer.lane(side)) for timer in self._timers]
        rounds = self._workloads.run(side, lanes, policy)
        for timer in self._timers:
            if excess := timer.excess():
                raise CandidateFailedError(Rejected(reason=excess, rule="threads"))
        return rounds

    def _notes(self, rounds: Rounds, *, is_privileged: bool) -> tuple[str, ...]:
        threads, cores = self._ground.threads, self._ground.cores
        bound = f", bound to {_cores_text(cores)}" if threads else ""
        notes = [
            self._ground.swept,
            f"reference: eager torch {torch.__version__} on {_threads_text(self._benches[0].threads)}{bound}; "
            "OpenMP has as many",
        ]
        for timer, timing in zip(self._timers, rounds.timings, strict=False):
            where = f"workload {timer.bench.workload!r}: " if timer.bench.workload else ""
            notes += [f"{where}{note}" for note in timer.notes(timing)]
        if not is_privileged:
            notes.append("timed at normal priority: other processes of this host could get in between")
        return tuple(notes)


def _cores_text(cores: frozenset[int]) -> str:
    return f"core {min(cores)}" if len(cores) == 1 else f"cores {', '.join(map(str, sorted(cores)))}"


def _threads_text(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"
