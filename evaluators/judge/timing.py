"""How fast is a candidate? Pairs with the reference, on fresh data, every output looked at.

A timing judge works alone on its device, under the lease. Whatever else this program does meanwhile on the host
(checks, compilers) has low priority. Both sides go before other processes where that is permitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import torch

from evaluators.judge.arena import total_bytes
from evaluators.judge.awake import AwakeCores
from evaluators.judge.baseline import FEW_PAGES, BaselineSide
from evaluators.judge.bench import Bench, Calls
from evaluators.judge.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.families import CheckData, DataSet, TimedData
from evaluators.judge.protocol import Artifact
from evaluators.judge.side import JUDGE_PRIORITY, schedule
from evaluators.judge.stopwatch import POLICIES, CacheSweeper, Pair, Timing, TimingPolicy, net_ns, time_pairs
from evaluators.judge.wrong import WrongOutputError, say_wrong
from messages.commands import Purpose
from messages.tasks import TaskSpec
from messages.verdicts import Measured, Outpaced, Quarantined, Unstable, Verdict

_PREPARED_PAIRS = 16
_WARM_UPS = 2
_GROWTH_SHARE = 0.1
"""Share of timed calls up to which new memory for the reference is no matter: medians do not see it."""
_FASTEST_MEMORY = 2e12
"""Bytes per second that no host's memory reaches: two sockets with twelve channels each give half of it."""


class Timer:
    """Times candidates of one task that passed their checks, one after the other."""

    def __init__(self, bench: Bench, task: TaskSpec, baseline: BaselineSide, awake: AwakeCores) -> None:
        """Warm the reference up and make the data for the first candidate.

        Raises:
            BaselineError: the baseline worker is broken.
        """
        self._bench = bench
        self._baseline = baseline
        self._awake = awake
        self._sweeper = CacheSweeper()
        self._grown = 0
        """Timed calls in which the reference was given new memory."""
        self._allowed = next(CheckData(bench.problem, task.tolerance).sets()).allowed
        self._data = TimedData(bench.problem)
        first = self._data.next()
        bench.buffers.lay(first.inputs, first.state)
        baseline.attach(bench.buffers.inputs, bench.problem.tensors, trains=bench.problem.trains)
        self._data.prepare(_PREPARED_PAIRS)

    def time(self, artifact: Artifact, purpose: Purpose) -> Verdict:
        """Time one candidate.

        Raises:
            BaselineError: the baseline worker is broken.
        """
        policy = POLICIES[purpose]
        with self._bench.side(artifact) as side:
            try:
                side.load()
                with self._hurried(side) as is_privileged, self._awake:
                    timing = self._pairs(side, policy)
            except WrongOutputError as wrong:
                return wrong.verdict
            except CandidateFailedError as failure:
                return failure.verdict
        verdict = self._conclude(timing, policy)
        if isinstance(verdict, Measured):
            return msgspec.structs.replace(verdict, notes=self._notes(verdict.pairs, is_privileged=is_privileged))
        return verdict

    def renew(self) -> None:
        """Make data ready for the next candidate."""
        self._data.prepare(_PREPARED_PAIRS)

    @contextmanager
    def _hurried(self, side: CandidateSide) -> Iterator[bool]:
        """Let both sides and the judge go before other processes of this host. Yields whether that is permitted."""
        sides = (side, self._baseline)
        is_privileged = all(one.hurry(first=True) for one in sides) and schedule(os.getpid(), JUDGE_PRIORITY)
        try:
            yield is_privileged
        finally:
            schedule(os.getpid(), 0)
            for one in sides:
                one.hurry(first=False)

    def _pairs(self, side: CandidateSide, policy: TimingPolicy) -> Timing:
        bench, baseline, sweep = self._bench, self._baseline, self._sweeper.sweep
        calls = Calls(bench, side)
        for _ in range(_WARM_UPS):
            calls.on(self._data.next())
            baseline.call(limit_s=bench.evaluation_limit_s)

        def reference_ns() -> int:
            sweep()
            pages = baseline.page_faults()
            answer = baseline.call(limit_s=bench.evaluation_limit_s)
            self._grown += baseline.page_faults() - pages > FEW_PAGES
            return net_ns(answer.elapsed_ns, baseline.empty_ns)

        def run_pair(candidate_first: bool) -> Pair:
            data = self._data.next()
            bench.buffers.lay(data.inputs, data.state)
            before = 0 if candidate_first else reference_ns()
            candidate_ns = calls.again(data.family, just_before=sweep)
            after = reference_ns() if candidate_first else 0
            self._compare(data)
            return Pair(candidate_ns=candidate_ns, reference_ns=before + after)

        self._grown = 0
        return time_pairs(run_pair, policy)

    def _compare(self, data: DataSet) -> None:
        """Compare the outputs of a timed call with the reference's of the same pair.

        Raises:
            WrongOutputError: they differ.
        """
        kept = self._baseline.keep()
        outputs = self._bench.buffers.outputs.tensors
        for name, out, eager, allowed in zip(self._bench.output_names, outputs, kept, self._allowed, strict=True):
            if not allowed.accepts_beside(out, eager):
                wrong, worst, _ = allowed.errors(out, eager.double() if eager.is_floating_point() else eager)
                raise WrongOutputError(say_wrong(f"{data.family}, timed call", name, out, eager, wrong, worst))

    def _conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        interval = timing.interval
        least_us = total_bytes(self._bench.problem.tensors) / _FASTEST_MEMORY * 1e6
        if timing.hopeless:
            return Outpaced(
                reason=f"clearly slower than the reference: about {timing.speedup:.3g}x after {timing.pairs} pairs",
                speedup_interval=interval,
            )
        if timing.latency_us < least_us:
            reason = (
                f"{timing.latency_us:.2f} us is less than {least_us:.2f} us, in which no memory could deliver its "
                "inputs and take its outputs"
            )
            return Quarantined(reason=reason, speedup_interval=interval)
        if timing.half_width > policy.unstable_half_width:
            reason = f"after {timing.pairs} pairs the speedup is only known to ±{timing.half_width:.0%}"
            return Unstable(reason=reason, speedup_interval=interval)
        return Measured(
            timed=True,
            latency_us=timing.latency_us,
            reference_latency_us=timing.reference_latency_us,
            speedup_vs_reference=timing.speedup,
            speedup_interval=interval,
            pairs=timing.pairs,
        )

    def _notes(self, pairs: int, *, is_privileged: bool) -> tuple[str, ...]:
        notes = [
            f"{self._sweeper.size_bytes >> 20} MiB are read before every timed call: caches begin cold",
            f"reference: eager torch {torch.__version__} on {self._bench.threads} threads; OpenMP has as many",
        ]
        if self._grown > _GROWTH_SHARE * pairs:
            notes.append(
                f"in {self._grown} of {pairs} timed calls the reference was given new memory, which costs time"
            )
        if not is_privileged:
            notes.append("timed at normal priority: other processes of this host could get in between")
        return tuple(notes)
