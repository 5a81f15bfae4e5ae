"""Times a candidate on all workloads of a task, and says what that comes to: the same on a CPU and on a GPU.

How one workload is timed is its timer's matter: `workload_timing.py`, `gpu_workload_timing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from evaluators.judge.bench import Bench
from evaluators.judge.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.naming import Failure, named
from evaluators.judge.rounds import Lane, Rounds, measured_together, repeat_lane, time_lanes, told
from evaluators.judge.stopwatch import Timing, TimingPolicy, outpaced
from evaluators.judge.wrong import WrongOutputError
from messages.verdicts import Measured, Outpaced, Verdict


class TimesOne(Protocol):
    """What times candidates on one workload."""

    bench: Bench

    def conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        """Return what pairs come to."""


_Timer = TypeVar("_Timer", bound=TimesOne)


class TimedWorkloads(Generic[_Timer]):
    """The workloads of a task on which candidates are timed, the cheapest first."""

    def __init__(self, timers: Iterable[_Timer]) -> None:
        """Put them in order.

        Args:
            timers: of at least one workload.
        """
        self.timers = sorted(timers, key=lambda timer: timer.bench.reference_ns)
        self._at = self.timers[0]
        """The workload of which something is being done."""

    @property
    def first(self) -> _Timer:
        """Return the cheapest one."""
        return self.timers[0]

    def attempt(self, run: Callable[[], Rounds]) -> Rounds | Verdict:
        """Time a candidate; if it fails, return the verdict, which says on which workload.

        Args:
            run: loads it and times it.
        """
        self._at = self.first
        try:
            return run()
        except WrongOutputError as wrong:
            return self.named(wrong.verdict, self._at)
        except CandidateFailedError as failure:
            return self.named(failure.verdict, self._at)

    def turn_to(self, timer: _Timer) -> None:
        """Take note of the workload of which something is done now."""
        self._at = timer

    def lane(self, timer: _Timer, lane: Lane) -> Lane:
        """Return a workload's pairs, of which it is known that they are being run."""

        def turned(act: Callable[[], None]) -> Callable[[], None]:
            def act_there() -> None:
                self.turn_to(timer)
                act()

            return act_there

        lane.begin, lane.enter = turned(lane.begin), turned(lane.enter)
        return lane

    def run(self, side: CandidateSide, lanes: list[Lane], policy: TimingPolicy) -> Rounds:
        """Run the pairs of a candidate that is loaded.

        Args:
            side: the candidate.
            lanes: of each workload, in their order.
            policy: when to stop.

        Raises:
            CandidateFailedError: it fails.
            WrongOutputError: an output of a timed call is wrong.
        """
        # What a candidate compiles, it compiles on its first call on each workload. So all of these come before any
        # pair: then nothing can be started any more, and what was started is looked for, now and in the end.
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
        """Run the pairs of one workload again, of a candidate that has been sealed; see `repeat_lane`.

        Raises:
            CandidateFailedError: it fails.
            WrongOutputError: an output of a timed call is wrong.
        """
        side.expect_alone()
        self.turn_to(self.timers[number])
        rounds = repeat_lane(lanes, number, policy, before)
        side.expect_alone()
        return rounds

    def conclude(self, rounds: Rounds, policy: TimingPolicy) -> Verdict:
        """Return what the pairs come to: of several workloads the first that is no measurement decides."""
        if len(self.timers) == 1:
            return self.first.conclude(rounds.together, policy)
        if rounds.together.hopeless:
            return self.given_up(rounds, policy)
        # How exactly each is known is not asked: what counts is how exactly their mean is.
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
        """Return the verdict on a candidate that was given up; of several workloads each is told."""
        verdict = outpaced(rounds.together, policy)
        if len(self.timers) == 1:
            return verdict
        pairs = zip(self.timers, rounds.timings, strict=False)
        workloads = tuple(told(timer.bench.workload, timing) for timer, timing in pairs)
        return msgspec.structs.replace(verdict, workloads=workloads)

    def named(self, verdict: Failure, timer: _Timer) -> Failure:
        """Return a verdict that says on which workload it came about."""
        return named(verdict, timer.bench.workload)
