"""Shared by checking and timing: a task's buffers and limits, and the calls of one candidate within them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.candidate.gpu_memory import others_bytes
from evaluators.judge.candidate.growth import Growth
from evaluators.judge.candidate.runner import Launcher
from evaluators.judge.candidate.side import Answer
from evaluators.judge.check.terms import Place, terms_for
from evaluators.judge.check.wrong import WrongOutputError, refuse_if_unfinished
from evaluators.judge.data.arena import total_bytes
from evaluators.judge.data.families import DataSet
from evaluators.judge.data.memory import Buffers, Moves, make_buffers
from evaluators.judge.intake.examining import Reads, bytes_read
from evaluators.judge.protocol import Artifact, Limits
from evaluators.judge.reference.problem import Problem
from evaluators.judge.time.stopwatch import BLOCK, net_ns
from evaluators.languages.base import LanguageSupport
from messages.verdicts import TimedOut, Wrong

_ELSEWHERE_AFTER = 10
"""Timed calls, at most, before two with crossed places that are not timed."""
OUTPUTS_REUSED = "outputs_reused: what it returned is overwritten by a later call; a caller must copy what it keeps"
COPY_SHARE = 0.2
"""Of a call's time: more is never taken off for handing outputs over, which a candidate might have spared itself."""


class Bench:
    """A workload's state between candidates: buffers, limits, terms."""

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
        buffers: Buffers | None = None,
        workload: str = "",
        number: int = 0,
        is_hidden: bool = False,
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
            buffers: of the workload, where several share their memory; None: made here.
            workload: its name, where there are several.
            number: of the workload among all whose calls a runner can be asked for.
            is_hidden: whether authors of candidates are not to be told of it.
        """
        self.problem = problem
        self.workload, self.number, self.is_hidden = workload, number, is_hidden
        self.threads = threads
        self._limits = limits
        self._reference_s = reference_ns / 1e9
        self._support = support
        self._launcher = launcher
        self._keep = keep | self._launcher.pids
        self.terms = terms_for(problem, problem.rules, support)
        self.buffers = buffers or make_buffers([problem.tensors], problem.device)[0]
        self.reference_ns = reference_ns
        self._last: CandidateSide | None = None

    @property
    def returns_outputs(self) -> bool:
        """True if candidates return their outputs, and their runner copies them."""
        return self.terms.module is not None

    @property
    def output_names(self) -> list[str]:
        """Return the names of the outputs."""
        return [spec.name for spec in self.problem.output_specs]

    @property
    def tensor_bytes(self) -> int:
        """Return the size of inputs, state and outputs together."""
        return total_bytes(self.problem.tensors)

    @cached_property
    def needed_bytes(self) -> int:
        """Find out how many of them the outputs depend on, in the draw that needs fewest; takes some seconds.

        Raises:
            ProblemError: the reference fails on its own inputs.
        """
        return bytes_read(self.problem.tensors, Reads(self.problem).least)

    @property
    def call_limit_s(self) -> float:
        """Return how long a call of a candidate may take."""
        return max(self._limits.call_s, self._limits.call_slowdown * self._reference_s)

    @property
    def first_call_limit_s(self) -> float:
        """Return how long a call may take in which something is done for the first time."""
        return self._limits.first_call_s

    @property
    def evaluation_limit_s(self) -> float:
        """Return how long the calls of a candidate may take together."""
        return max(self._limits.evaluation_s, self._limits.evaluation_slowdown * self._reference_s)

    def side(
        self,
        artifact: Artifact,
        *,
        private_inputs: bool = False,
        stops: bool = True,
        others: Sequence[Bench] = (),
        cupti: str = "",
    ) -> CandidateSide:
        """Return a runner for a candidate, not yet started.

        Args:
            artifact: what was built.
            others: all workloads, by their numbers, that it can be asked for, where there are several.
            private_inputs: let it write to a copy of its inputs.
            stops: whether it is stopped between its calls; only to see what that costs.
            cupti: the library by which its calls are to be recorded; empty: none will be.
        """
        self.buffers.renew()
        self.buffers.restore()
        self._last = CandidateSide(
            self.place,
            artifact,
            self._support,
            self._launcher,
            self._limits,
            threads=self.threads,
            others=[bench.place for bench in others],
            keep=self._keep,
            private_inputs=private_inputs,
            stops=stops,
            cupti=cupti,
        )
        return self._last

    @property
    def place(self) -> Place:
        """Return what a runner is to know of this workload."""
        return Place(buffers=self.buffers, terms=self.terms, number=self.number)

    @property
    def isolation(self) -> tuple[str, ...]:
        """Return the layers that the last candidate's process was behind."""
        return () if self._last is None else self._last.isolation


class Calls:
    """The calls of one candidate: each on poisoned outputs, kept inside them, all of them within the limits."""

    def __init__(self, bench: Bench, side: CandidateSide, *, is_timed: bool = False) -> None:
        """Begin.

        Args:
            bench: the workload's.
            side: the candidate.
            is_timed: see `Moves`.
        """
        self._bench = bench
        self._side = side
        self._spent_ns = self._count = 0
        self._moves = Moves(bench.buffers.places, is_timed=is_timed)
        self.first: int | None = None
        """Arrangement of the first call; before it, None."""
        self._chance = random.SystemRandom()
        self._until_elsewhere = self._chance.randint(1, _ELSEWHERE_AFTER)
        self.growth = Growth(side.pid, None if bench.problem.device == "cpu" else others_bytes)
        self.is_reusing = False
        """True if a module returned memory that an earlier result lay in."""
        self.copy_ns = 0
        """Cost of handing over a call's results, to be taken off; see `time/cpu.py`."""
        self.last = Answer(status=0, elapsed_ns=0)
        """Of the last call; before the first, nothing."""

    def on(self, data: DataSet, *, at: int | None = None) -> None:
        """Call it on a data set.

        Args:
            data: what it is called on.
            at: the number of an arrangement; None: one is drawn.
        """
        self.turn()
        self._bench.buffers.lay(data.inputs, data.state, at=self._moves.next() if at is None else at)
        self.first = self._bench.buffers.arrangement if self.first is None else self.first
        self._side.hold(data.state)
        self.again(data.family)

    def elsewhere(self, data: DataSet) -> Iterator[None]:
        """Now and then, call it twice more on the same data, with places crossed; yield after each call.

        In timed calls the place of one tensor tells those of all others. Here it does not: what is kept by the address
        of a single tensor is found out. There are two calls, so that what a candidate does in every other call stays in
        one of the two timed calls of a block, where the clocks find it (`gpu_clocks.py`).
        """
        self._until_elsewhere -= 1
        if self._until_elsewhere > 0:
            return
        self._until_elsewhere = self._chance.randint(1, _ELSEWHERE_AFTER)
        for _ in range(BLOCK):
            self.on(data, at=self._moves.crossed())
            yield

    def look_after(self) -> None:
        """Look at what the process holds after a timed call, and where results lie."""
        self.growth.look(self._count)
        self.look_for_reuse()

    def look_for_reuse(self) -> None:
        """See whether a module returned memory that an earlier result lies in."""
        if self._bench.returns_outputs:
            self.is_reusing = self._side.reuses_outputs() or self.is_reusing

    def notes(self) -> Iterator[str]:
        """Say what `look_after` saw."""
        if self.is_reusing:
            yield OUTPUTS_REUSED
        yield from self.growth.notes()

    def turn(self) -> None:
        """Have the runner called on this workload from now on; what lies in the memory is another's until then."""
        self._side.turn_to(self._bench.place)

    def recorded(self, cover: Callable[[], None]) -> bytes:
        """Have a call recorded, on what lies in the buffers. Returns what was printed meanwhile; nothing is compared.

        Args:
            cover: as in `again`.
        """
        self._bench.buffers.outputs.poison()
        self._bench.buffers.settle()
        cover()
        return self._side.record(limit_s=max(self._bench.call_limit_s, self._bench.first_call_limit_s))

    def again(
        self,
        family: str,
        *,
        just_before: Callable[[], None] | None = None,
        cover: Callable[[], None] | None = None,
    ) -> int:
        """Call it on what lies in the buffers. Returns its time in ns, the empty call taken off.

        Args:
            family: where that data came from.
            just_before: done when the outputs are poisoned.
            cover: begins work that the call is to begin behind, when everything else is settled.
        """
        outputs = self._bench.buffers.outputs
        outputs.poison()
        if (glimpse := self._bench.buffers.glimpse) is not None:
            glimpse.draw(outputs.tensors)
        if just_before is not None:
            just_before()
        self._bench.buffers.settle()
        if cover is not None:
            cover()
        call_limit_s = self._side.call_limit_s(self._bench.call_limit_s)
        self._count += 1
        answer = self.last = self._side.call(limit_s=call_limit_s)
        # One that took longer than its limit was starved for the rest: that is the host's fault.
        self._spent_ns += min(answer.elapsed_ns, int(call_limit_s * 1e9))
        limit_s = self._bench.evaluation_limit_s
        if self._spent_ns > limit_s * 1e9:
            reason = f"its calls together took longer than {limit_s:g} s"
            raise CandidateFailedError(TimedOut(reason=reason, stage="evaluation", limit_s=limit_s))
        if glimpse is not None:
            refuse_if_unfinished(glimpse, family)
        if outputs.broken_guards():
            raise WrongOutputError(Wrong(reason="it wrote outside its outputs' bounds", family=family))
        if self._bench.buffers.inputs.altered():
            raise WrongOutputError(Wrong(reason="it changes its inputs", family=family))
        net = net_ns(answer.elapsed_ns, self._side.empty_ns)
        return net - min(self.copy_ns, int(COPY_SHARE * net))
