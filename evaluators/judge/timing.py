"""How fast is a candidate? Pairs with the reference, on fresh data, every output looked at.

A timing judge works alone on its device, under the lease. Whatever else this program does meanwhile on the host
(checks, compilers) has low priority. Both sides go before other processes where that is permitted. If the task says on
how many threads they run, both are bound to the same cores, the quietest ones, and the judge to the others.

No candidate starts early: its process is stopped, every thread of it, before the next inputs are laid, and one that has
started another process is rejected.

Of several workloads each has a reference of its own, and all are asked of one process of the candidate; `rounds.py`
says in which order, and what they come to together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from evaluators.judge.awake import AwakeCores
from evaluators.judge.baseline import BaselineSide
from evaluators.judge.bench import Bench
from evaluators.judge.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.ground import Ground
from evaluators.judge.naming import with_printed
from evaluators.judge.protocol import Artifact
from evaluators.judge.rounds import Rounds
from evaluators.judge.stopwatch import POLICIES, TimingPolicy
from evaluators.judge.timed_workloads import TimedWorkloads
from evaluators.judge.workload_timing import EMPTY_S, WorkloadTimer
from evaluators.runners.base import EMPTY
from messages.commands import Purpose
from messages.tasks import TaskSpec
from messages.verdicts import Interval, Measured, Rejected, Unstable, Verdict

_UNKNOWN = Interval(low=0.0, high=0.0)
"""Of a candidate that was not timed at all."""


class Timer:
    """Times candidates of one task that passed their checks, one after the other."""

    def __init__(
        self, benches: Sequence[Bench], task: TaskSpec, baselines: Sequence[BaselineSide], awake: AwakeCores
    ) -> None:
        """Warm the references up and make the data for the first candidate.

        Args:
            benches: of the task's workloads, by their numbers; hidden ones are not timed.
            task: for its tolerances and rules.
            baselines: the references of those that are timed.
            awake: keeps the cores from sleeping meanwhile.

        Raises:
            BaselineError: a baseline worker is broken.
        """
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
        """Time one candidate.

        Raises:
            BaselineError: a baseline worker is broken.
        """
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
            # One that was given up gets no credit: whether it slowed the reference down need not be known.
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
        """Load a candidate and time it, where and as the references run.

        Raises:
            CandidateFailedError: it fails.
            WrongOutputError: an output of a timed call is wrong.
        """
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
