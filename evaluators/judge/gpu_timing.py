"""How fast is a candidate on a GPU? Pairs with the reference, on fresh data, every output looked at.

Of several workloads each has references of its own, and all are asked of one process of the candidate; `rounds.py`
says in which order, and what they come to together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec
import torch

from evaluators.judge.awake import AwakeCores
from evaluators.judge.bench import Bench
from evaluators.judge.candidate import CandidateSide
from evaluators.judge.gpu_baseline import DEVICE, GpuBaselineSide
from evaluators.judge.gpu_cover import Cover
from evaluators.judge.gpu_doubts import settle_doubts
from evaluators.judge.gpu_looks import Looks
from evaluators.judge.gpu_workload_timing import CLOCK, GLANCED, GpuWorkloadTimer
from evaluators.judge.memory import make_areas
from evaluators.judge.naming import with_printed
from evaluators.judge.protocol import Artifact
from evaluators.judge.rounds import Rounds, together
from evaluators.judge.stopwatch import Pair, TimingPolicy, about, slowed
from evaluators.judge.timed_workloads import TimedWorkloads
from messages.commands import Purpose
from messages.tasks import TaskSpec
from messages.verdicts import Measured, Rejected, Verdict

_Read = TypeVar("_Read")

POLICIES: dict[Purpose, TimingPolicy] = {
    "screen": TimingPolicy(
        min_pairs=16,
        # Four blocks: the fewest that have an interval.
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
        """Warm the baselines up and make the data for the first candidate.

        Args:
            benches: of the task's workloads, by their numbers; hidden ones are not timed.
            task: for its tolerances and rules.
            baselines: of each workload that is timed the eager reference, and perhaps a second one.
            awake: keeps the cores from sleeping meanwhile.

        Raises:
            BaselineError: a baseline worker is broken.
        """
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
        """What was timed last."""

    def time(self, artifact: Artifact, purpose: Purpose, keep_above: float | None = None) -> Verdict:
        """Time one candidate.

        Raises:
            BaselineError: a baseline worker is broken.
        """
        policy = msgspec.structs.replace(POLICIES[purpose], keep_above=keep_above)
        verdict = self._timed(artifact, policy)
        if not (isinstance(verdict, Rejected) and verdict.rule == CLOCK):
            return verdict
        # A busy host, too, may keep a process from answering when its GPU is done; it seldom does so twice. Whose work
        # goes on beside its events does it again.
        again = self._timed(artifact, policy)
        note = f"timed once more in another process, since in the first one {verdict.reason}"
        return msgspec.structs.replace(again, notes=(*again.notes, note)) if isinstance(again, Measured) else again

    def glance(self, side: CandidateSide, keep_above: float) -> Verdict | None:
        """Look at a candidate that is being checked: is it so slow that there is nothing to time? None: it is not.

        Args:
            side: the candidate, which was right on every workload.
            keep_above: see `EvaluateCandidate`.

        Raises:
            BaselineError: a baseline worker is broken.
        """
        found = self._workloads.attempt(lambda: self._glanced(side, keep_above))
        if not isinstance(found, Rounds):
            return found
        policy = msgspec.structs.replace(POLICIES["screen"], keep_above=keep_above)
        is_hopeless = found.together.interval.high < keep_above
        return self._workloads.given_up(found, policy) if is_hopeless else None

    def _glanced(self, side: CandidateSide, keep_above: float) -> Rounds:
        """Make a few calls on every workload.

        Raises:
            BaselineError: a baseline worker is broken.
            CandidateFailedError: it fails.
            WrongOutputError: it writes beside its outputs.
        """
        pairs = []
        with self._awake:
            for timer in self._timers:
                self._workloads.turn_to(timer)
                pairs.append(timer.glance(side))
            found = _about(pairs)
            if found.together.interval.high < keep_above:
                # Somebody else may be at work on the GPU. The middle one: a short call may come between his.
                found = _about(pairs, self._timers[len(self._timers) // 2].pace(side))
        return found

    def _timed(self, artifact: Artifact, policy: TimingPolicy) -> Verdict:
        """Time it in a process of its own."""
        with self._workloads.first.bench.side(artifact, others=self._benches) as side:
            # While the process begins.
            self._renew(is_timed_again=artifact.product == self._last)
            self._last = artifact.product
            rounds = self._workloads.attempt(lambda: self._rounds(side, policy))
            printed = side.printed
        verdict = self._workloads.conclude(rounds, policy) if isinstance(rounds, Rounds) else rounds
        return with_printed(verdict, printed)

    def record(self, artifact: Artifact, cupti: str, read: Callable[[bytes], _Read]) -> dict[str, list[_Read]]:
        """Have calls of a candidate recorded. Returns what was read of each, by workloads.

        Args:
            artifact: of one that was timed.
            cupti: the library by which that is done.
            read: is given what was printed until the end of each.

        Raises:
            CandidateFailedError: it fails.
            WrongOutputError: it writes beside its outputs.
        """
        with self._workloads.first.bench.side(artifact, others=self._benches, cupti=cupti) as side:
            side.load()
            with self._awake:
                return {timer.bench.workload: [read(each) for each in timer.record(side)] for timer in self._timers}

    def _renew(self, *, is_timed_again: bool) -> None:
        """Make data anew that the last candidate saw: all of it, for one that saw it itself."""
        for timer in self._timers:
            timer.renew(is_timed_again=is_timed_again)

    def _rounds(self, side: CandidateSide, policy: TimingPolicy) -> Rounds:
        """Load a candidate and time it.

        Raises:
            CandidateFailedError: it fails.
            WrongOutputError: an output of a timed call is wrong.
        """
        unloaded, search = self._workloads.first.time_unloaded(side), self._cover.search()
        looks = Looks(self._cover.longest_gap_ns, is_alone=self._cover.is_alone)
        side.load()
        lanes = [self._workloads.lane(timer, timer.lane(side, unloaded, search, looks)) for timer in self._timers]
        with self._awake:
            rounds = self._workloads.run(side, lanes, policy)
            run_again = partial(self._workloads.run_again, side, lanes, policy)
            return settle_doubts(self._timers, run_again, rounds)


def _about(pairs: Sequence[Pair], pace: float = 1.0) -> Rounds:
    """Return what glances come to, if references take `pace` times as long now as is said."""
    timings = tuple(slowed(about(pair, GLANCED), 1 / pace) for pair in pairs)
    return Rounds(timings=timings, together=together(timings))


def is_healthy() -> bool:
    """Say whether the GPU still computes for this process."""
    try:
        return int(torch.ones(1024, device=DEVICE).sum()) == 1024
    except RuntimeError:
        return False
