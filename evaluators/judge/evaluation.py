"""One candidate, from loading to verdict: checks first, timing under the lease, every output looked at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import msgspec
import torch

from evaluators.judge.arena import is_poison, total_bytes
from evaluators.judge.baseline import BaselineSide
from evaluators.judge.candidate import Buffers, CandidateFailedError, CandidateSide
from evaluators.judge.compare import Allowed, describe_wrong
from evaluators.judge.families import CheckData, DataSet, TimedData
from evaluators.judge.problem import Problem
from evaluators.judge.protocol import Judge, Limits, Work
from evaluators.judge.side import JUDGE_PRIORITY, schedule
from evaluators.judge.stopwatch import POLICIES, CacheSweeper, Pair, Timing, TimingPolicy, net_ns, time_pairs
from messages.tasks import TaskSpec
from messages.verdicts import CallCheck, Crashed, Measured, Outpaced, Quarantined, TimedOut, Unstable, Verdict, Wrong

_PREPARED_PAIRS = 16
_WARM_UPS = 2
_FASTEST_MEMORY = 2e12
"""Bytes per second that no host's memory reaches: two sockets with twelve channels each give half of it."""


class _WrongOutputError(Exception):
    """An output is wrong; carries the verdict."""

    def __init__(self, verdict: Wrong) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class Bench:
    """All that the judge keeps for its task between candidates."""

    def __init__(
        self, task: TaskSpec, problem: Problem, baseline: BaselineSide, limits: Limits, *, threads: int
    ) -> None:
        self.problem = problem
        self.specs = problem.tensors
        self.baseline = baseline
        self.limits = limits
        self.threads = threads
        self.buffers = Buffers(self.specs)
        self.checks = CheckData(problem, task.tolerance)
        self.timed = TimedData(problem)
        self.sweeper = CacheSweeper()
        first = self.timed.next()
        self.buffers.lay(first.inputs, first.state)
        baseline.attach(self.buffers.inputs, self.specs, trains=problem.trains)

    @property
    def call_limit_s(self) -> float:
        """Return how long a call of a candidate may take."""
        return max(self.limits.call_s, self.limits.call_slowdown * self.baseline.call_ns / 1e9)

    @property
    def evaluation_limit_s(self) -> float:
        """Return how long the calls of a candidate may take together."""
        return max(self.limits.evaluation_s, self.limits.evaluation_slowdown * self.baseline.call_ns / 1e9)

    @property
    def least_latency_us(self) -> float:
        """Return a time in which no memory could deliver the inputs and take the outputs."""
        return total_bytes(self.specs) / _FASTEST_MEMORY * 1e6

    def side(self, request: Judge, *, private_inputs: bool = False) -> CandidateSide:
        """Return a runner for a candidate, not yet started."""
        return CandidateSide(
            self.buffers,
            request.library,
            request.entry_point,
            self.limits,
            threads=self.threads,
            keep=frozenset({self.baseline.pid}),
            private_inputs=private_inputs,
        )


class Evaluation:
    """The judging of one candidate."""

    def __init__(self, bench: Bench, request: Judge, lease: Callable[[Work], AbstractContextManager[None]]) -> None:
        """Prepare.

        Args:
            bench: what is kept for the task.
            request: which candidate, and why.
            lease: waits until the device is free for a kind of work, and gives it back.
        """
        self._bench = bench
        self._request = request
        self._lease = lease
        self._checks: list[CallCheck] = []
        self._allowed: tuple[Allowed, ...] = ()
        self._seeds: list[int] = []
        self._spent_ns = 0
        self._privileged = False

    def run(self) -> Verdict:
        """Check, then time.

        Raises:
            BaselineError: the baseline worker is broken.
        """
        with self._bench.side(self._request) as side:
            try:
                with self._lease("check"):
                    side.load()
                    self._check(side)
                    self._bench.timed.prepare(_PREPARED_PAIRS)
                policy = POLICIES[self._request.purpose]
                with self._lease("time"), self._hurried(side):
                    timing = self._time(side, policy)
                return self._conclude(timing, policy)
            except _WrongOutputError as wrong:
                return wrong.verdict
            except CandidateFailedError as failure:
                if not (isinstance(failure.verdict, Crashed) and side.segfaulted):
                    return failure.verdict
                crashed = failure.verdict
        return self._explain_segfault(crashed)

    def _check(self, side: CandidateSide) -> None:
        for data in self._bench.checks.sets():
            self._seeds.append(data.seed)
            self._call(side, data)
            outputs = self._bench.buffers.outputs.tensors
            found = [
                _check_output(data.family, name, outputs[index], data.expected[index], data.allowed[index])
                for index, name in enumerate(spec.name for spec in self._bench.problem.output_specs)
            ]
            self._allowed = self._allowed or data.allowed
            self._checks.append(max(found, key=lambda check: check.error_ratio))

    def _call(self, side: CandidateSide, data: DataSet, *, cold: bool = False) -> int:
        """Call the candidate on fresh data and see that it kept inside its outputs. Returns its time in ns."""
        buffers = self._bench.buffers
        buffers.lay(data.inputs, data.state)
        return self._call_laid(side, data.family, cold=cold)

    def _call_laid(self, side: CandidateSide, family: str, *, cold: bool) -> int:
        outputs = self._bench.buffers.outputs
        outputs.poison()
        if cold:
            self._bench.sweeper.sweep()
        answer = side.call(limit_s=self._bench.call_limit_s)
        self._spent_ns += answer.elapsed_ns
        if self._spent_ns > self._bench.evaluation_limit_s * 1e9:
            limit_s = self._bench.evaluation_limit_s
            reason = f"its calls together took longer than {limit_s:g} s"
            raise CandidateFailedError(TimedOut(reason=reason, stage="evaluation", limit_s=limit_s))
        if outputs.broken_guards():
            raise _WrongOutputError(Wrong(reason="it wrote outside its outputs' bounds", family=family))
        return net_ns(answer.elapsed_ns, side.empty_ns)

    @contextmanager
    def _hurried(self, side: CandidateSide) -> Iterator[None]:
        """Let both sides and the judge go before other processes of this host, where that is permitted."""
        sides = (side, self._bench.baseline)
        self._privileged = all(one.hurry(first=True) for one in sides) and schedule(os.getpid(), JUDGE_PRIORITY)
        try:
            yield
        finally:
            schedule(os.getpid(), 0)
            for one in sides:
                one.hurry(first=False)

    def _time(self, side: CandidateSide, policy: TimingPolicy) -> Timing:
        bench = self._bench
        for _ in range(_WARM_UPS):
            self._call(side, bench.timed.next())
            bench.baseline.call(limit_s=bench.evaluation_limit_s)

        def reference_ns() -> int:
            bench.sweeper.sweep()
            answer = bench.baseline.call(limit_s=bench.evaluation_limit_s)
            return net_ns(answer.elapsed_ns, bench.baseline.empty_ns)

        def run_pair(candidate_first: bool) -> Pair:
            data = bench.timed.next()
            bench.buffers.lay(data.inputs, data.state)
            before = 0 if candidate_first else reference_ns()
            candidate_ns = self._call_laid(side, data.family, cold=True)
            after = reference_ns() if candidate_first else 0
            self._compare_timed(data)
            return Pair(candidate_ns=candidate_ns, reference_ns=before + after)

        return time_pairs(run_pair, policy)

    def _compare_timed(self, data: DataSet) -> None:
        """Compare the outputs of a timed call with the reference's of the same pair."""
        kept = self._bench.baseline.keep()
        outputs = self._bench.buffers.outputs.tensors
        names = [spec.name for spec in self._bench.problem.output_specs]
        for name, out, eager, allowed in zip(names, outputs, kept, self._allowed, strict=True):
            if not allowed.accepts_beside(out, eager):
                wrong, worst, _ = allowed.errors(out, eager.double() if eager.is_floating_point() else eager)
                raise _WrongOutputError(_say_wrong(f"{data.family}, timed call", name, out, eager, wrong, worst))

    def _conclude(self, timing: Timing, policy: TimingPolicy) -> Verdict:
        interval = timing.interval
        if timing.hopeless:
            return Outpaced(
                reason=f"clearly slower than the reference: about {timing.speedup:.3g}x after {timing.pairs} pairs",
                speedup_interval=interval,
            )
        if timing.latency_us < self._bench.least_latency_us:
            reason = (
                f"{timing.latency_us:.2f} us is less than {self._bench.least_latency_us:.2f} us, in which no memory "
                "could deliver its inputs and take its outputs"
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
            checks=tuple(self._checks),
            reference_dtype=self._bench.checks.reference_dtype,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        bench = self._bench
        notes = [
            f"{bench.sweeper.size_bytes >> 20} MiB are read before every timed call: caches begin cold",
            f"reference: eager torch {torch.__version__} on {bench.threads} threads; OpenMP has as many",
            f"seeds of the checks: {', '.join(map(str, self._seeds))}",
        ]
        if not self._privileged:
            notes.append("timed at normal priority: other processes of this host could get in between")
        notes.extend(
            f"not checked on {family} inputs: the reference is not finite there" for family in bench.checks.skipped
        )
        if not bench.problem.trains:
            notes.append("the reference runs in eval mode: in training mode it is random")
        return tuple(notes)

    def _explain_segfault(self, crashed: Crashed) -> Crashed:
        """Try once more with inputs that may be written to: does that cure it?"""
        with self._lease("check"), self._bench.side(self._request, private_inputs=True) as side:
            try:
                side.load()
                self._call(side, self._bench.timed.next())
            except (CandidateFailedError, _WrongOutputError):
                return crashed
        reason = f"{crashed.reason}: it writes to its inputs, which are mapped read-only"
        return msgspec.structs.replace(crashed, reason=reason)


def _check_output(family: str, name: str, out: torch.Tensor, expected: torch.Tensor, allowed: Allowed) -> CallCheck:
    """Compare one output of a checked call.

    Raises:
        _WrongOutputError: it is wrong.
    """
    wrong, worst, ratio = allowed.errors(out, expected)
    if bool(wrong.any()):
        raise _WrongOutputError(_say_wrong(family, name, out, expected, wrong, worst))
    return CallCheck(family=family, max_abs_error=worst, error_ratio=ratio)


def _say_wrong(
    family: str, name: str, out: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor, worst: float
) -> Wrong:
    position = int(wrong.view(-1).int().argmax())
    got, want = out.view(-1)[position], expected.view(-1)[position].item()
    shown = "never written" if bool(is_poison(got.reshape(1))) else f"{got.item():.6g}"
    first: list[int] = []
    for size in reversed(out.shape):
        first.insert(0, position % size)
        position //= size
    count = int(wrong.sum())
    index = ", ".join(map(str, first))
    example = f"{name}[{index}] is {shown}, expected {want:.6g}"
    return Wrong(
        reason=f"{count} of {out.numel()} elements of {name} are wrong; {example}",
        family=family,
        wrong_elements=count,
        elements=out.numel(),
        first_wrong=tuple(first),
        max_abs_error=worst,
        patterns=describe_wrong(out, expected, wrong),
    )
