"""What checking and timing share: a task's buffers and limits, and the calls of one candidate within them."""

from __future__ import annotations

from collections.abc import Callable

from evaluators.judge.candidate import Buffers, CandidateFailedError, CandidateSide
from evaluators.judge.families import DataSet
from evaluators.judge.launching import Launcher
from evaluators.judge.problem import Problem
from evaluators.judge.protocol import Artifact, Limits
from evaluators.judge.stopwatch import net_ns
from evaluators.judge.wrong import WrongOutputError
from evaluators.languages.base import LanguageSupport
from messages.verdicts import TimedOut, Wrong


class Bench:
    """What a judge keeps for its task between candidates."""

    def __init__(
        self,
        problem: Problem,
        support: LanguageSupport,
        launcher: Launcher,
        limits: Limits,
        *,
        threads: int,
        reference_ns: int,
        keep: frozenset[int] = frozenset(),
    ) -> None:
        """Make the buffers.

        Args:
            problem: the task's.
            support: of the candidates' language.
            launcher: starts their runners.
            limits: what candidates may use.
            threads: how many OpenMP threads they are given: torch's default, as the reference.
            reference_ns: about how long the reference takes.
            keep: processes below this one that are not a candidate's.
        """
        self.problem = problem
        self.threads = threads
        self._limits = limits
        self._reference_s = reference_ns / 1e9
        self._support = support
        self._launcher = launcher
        self._keep = keep | self._launcher.pids
        self.buffers = Buffers(problem.tensors)

    @property
    def output_names(self) -> list[str]:
        """Return the names of the outputs."""
        return [spec.name for spec in self.problem.output_specs]

    @property
    def call_limit_s(self) -> float:
        """Return how long a call of a candidate may take."""
        return max(self._limits.call_s, self._limits.call_slowdown * self._reference_s)

    @property
    def evaluation_limit_s(self) -> float:
        """Return how long the calls of a candidate may take together."""
        return max(self._limits.evaluation_s, self._limits.evaluation_slowdown * self._reference_s)

    def side(self, artifact: Artifact, *, private_inputs: bool = False) -> CandidateSide:
        """Return a runner for a candidate, not yet started."""
        return CandidateSide(
            self.buffers,
            artifact,
            self._support,
            self._launcher,
            self._limits,
            threads=self.threads,
            keep=self._keep,
            private_inputs=private_inputs,
        )


class Calls:
    """The calls of one candidate: each on poisoned outputs, kept inside them, all of them within the limits."""

    def __init__(self, bench: Bench, side: CandidateSide) -> None:
        self._bench = bench
        self._side = side
        self._spent_ns = 0

    def on(self, data: DataSet) -> None:
        """Call it on a data set.

        Raises:
            CandidateFailedError: it does not answer, or takes too long.
            WrongOutputError: it writes beside its outputs.
        """
        self._bench.buffers.lay(data.inputs, data.state)
        self.again(data.family)

    def again(self, family: str, *, just_before: Callable[[], None] | None = None) -> int:
        """Call it on what lies in the buffers. Returns its time in ns, the empty call taken off.

        Args:
            family: where that data came from.
            just_before: done when the outputs are poisoned.

        Raises:
            CandidateFailedError: it does not answer, or takes too long.
            WrongOutputError: it writes beside its outputs.
        """
        outputs = self._bench.buffers.outputs
        outputs.poison()
        if just_before is not None:
            just_before()
        call_limit_s = self._side.call_limit_s(self._bench.call_limit_s)
        answer = self._side.call(limit_s=call_limit_s)
        # One that took longer than its limit was starved for the rest: that is the host's fault.
        self._spent_ns += min(answer.elapsed_ns, int(call_limit_s * 1e9))
        limit_s = self._bench.evaluation_limit_s
        if self._spent_ns > limit_s * 1e9:
            reason = f"its calls together took longer than {limit_s:g} s"
            raise CandidateFailedError(TimedOut(reason=reason, stage="evaluation", limit_s=limit_s))
        if outputs.broken_guards():
            raise WrongOutputError(Wrong(reason="it wrote outside its outputs' bounds", family=family))
        return net_ns(answer.elapsed_ns, self._side.empty_ns)
