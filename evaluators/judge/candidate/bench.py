"""Shared by checking and timing: a task's buffers and limits, and the calls of one candidate within them."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.candidate.gpu_memory import others_bytes
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
from evaluators.judge.time.sampling import BLOCK, net_ns
from evaluators.languages.base import LanguageSupport
from evaluators.runners.base import REUSED
from messages.verdicts import TimedOut, Wrong

_ELSEWHERE_AFTER = 10
"""Most timed calls before two untimed ones with crossed places."""
OUTPUTS_REUSED = "outputs_reused: what it returned is overwritten by a later call; a caller must copy what it keeps"
COPY_SHARE = 0.2
"""Largest share of a call's time subtracted for copying outputs, since a candidate could have avoided the copy."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SKIPPED_ONE_IN, _BLOCKS = 4, 4
"""The first quarter of the calls counts as warm-up; each quarter of the rest must end higher than it began."""
_FEWEST = 2 * _BLOCKS


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
        self.problem = problem
        self.workload, self.number, self.is_hidden = workload, number, is_hidden
        self.threads, self.reference_ns = threads, reference_ns
        self._limits, self._support, self._launcher = limits, support, launcher
        self._keep = keep | launcher.pids
        self.terms = terms_for(problem, problem.rules, support)
        self.returns_outputs = self.terms.module is not None
        """True if candidates return their outputs, and their runner copies them."""
        self.buffers = buffers or make_buffers([problem.tensors], problem.device)[0]
        self.output_names = [spec.name for spec in problem.output_specs]
        self.tensor_bytes = total_bytes(problem.tensors)
        reference_s = reference_ns / 1e9
        self.call_limit_s = max(limits.call_s, limits.call_slowdown * reference_s)
        self.record_limit_s = max(self.call_limit_s, limits.first_call_s)
        self.evaluation_limit_s = max(limits.evaluation_s, limits.evaluation_slowdown * reference_s)
        """Time limit of all calls of a candidate together."""
        self._last: CandidateSide | None = None

    @cached_property
    def needed_bytes(self) -> int:
        """Bytes that the outputs depend on, in the draw that needs fewest. Takes some seconds."""
        return bytes_read(self.problem.tensors, Reads(self.problem).least)

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
            artifact: the candidate's artifact.
            others: all workloads that it can be called on, by their numbers, if there are several.
            private_inputs: let it write to a copy of its inputs.
            stops: stop it between its calls; False only to measure the cost of stopping.
            cupti: the library that records its calls; empty: none are recorded.
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
        """Return the part of this workload that a runner may know."""
        return Place(buffers=self.buffers, terms=self.terms, number=self.number)

    @property
    def isolation(self) -> tuple[str, ...]:
        """Return the layers that isolated the last candidate's process."""
        return () if self._last is None else self._last.isolation


class Calls:
    """The calls of one candidate, each on poisoned outputs, with bounds and limits checked."""

    def __init__(self, bench: Bench, side: CandidateSide, *, is_timed: bool = False) -> None:
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
        """True if a module returned the memory of an earlier result."""
        self.copy_ns = 0
        """Cost of copying a call's results, to be subtracted; see `time/cpu.py`."""
        self.last = Answer(status=0, elapsed_ns=0)
        """Answer of the last call; empty before the first."""

    def on(self, data: DataSet, *, at: int | None = None) -> None:
        """Call it on a data set."""
        self.turn()
        self._bench.buffers.lay(data.inputs, data.state, at=self._moves.next() if at is None else at)
        self.first = self._bench.buffers.arrangement if self.first is None else self.first
        self._side.hold(data.state)
        self.again(data.family)

    def elsewhere(self, data: DataSet) -> Iterator[None]:
        """Sometimes call it twice more on the same data, with places crossed; yield after each call.

        In timed calls the place of one tensor determines those of all others; here it does not. There are two calls, so
        that work done in every other call stays in one of the two timed calls of a block, where the clocks find it
        (`gpu_clocks.py`).
        """
        self._until_elsewhere -= 1
        if self._until_elsewhere > 0:
            return
        self._until_elsewhere = self._chance.randint(1, _ELSEWHERE_AFTER)
        for _ in range(BLOCK):
            self.on(data, at=self._moves.crossed())
            yield

    def look_after(self) -> None:
        """Check the process's memory after a timed call, and the addresses of results."""
        self.growth.look(self._count)
        self.look_for_reuse()

    def look_for_reuse(self) -> None:
        """Check whether a module returned the memory of an earlier result."""
        if self._bench.returns_outputs:
            self.is_reusing = bool(self._side.ask(REUSED).status) or self.is_reusing

    def notes(self) -> Iterator[str]:
        """Return the findings of `look_after`."""
        if self.is_reusing:
            yield OUTPUTS_REUSED
        yield from self.growth.notes()

    def turn(self) -> None:
        """Switch the runner to this workload; the memory still contains another workload's data then."""
        self._side.turn_to(self._bench.place)

    def recorded(self, cover: Callable[[], None]) -> bytes:
        """Record a call on the contents of the buffers. Returns the output printed meanwhile."""
        self._bench.buffers.outputs.poison()
        self._bench.buffers.settle()
        cover()
        return self._side.record(limit_s=self._bench.record_limit_s)

    def again(
        self,
        family: str,
        *,
        just_before: Callable[[], None] | None = None,
        cover: Callable[[], None] | None = None,
    ) -> int:
        """Call it on the contents of the buffers. Returns its time in ns, without an empty call's.

        Args:
            family: family of that data.
            just_before: called when the outputs are poisoned.
            cover: starts work that the call is to begin behind, when everything else is settled.
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
        # A call beyond its limit was starved for the rest, which is the host's fault.
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


class Growth:
    """Memory and descriptors of a process after each of its calls: steady growth is a leak."""

    def __init__(self, pid: int, device_bytes: Callable[[], int] | None = None) -> None:
        self._pid, self._device_bytes = pid, device_bytes
        self._calls: list[int] = []
        self._memory: list[int] = []
        self._descriptors: list[int] = []
        self._on_device: list[int] = []

    def look(self, calls: int) -> None:
        """Read the memory of the stopped process after a timed call, the latest of `calls`."""
        process = Path(f"/proc/{self._pid}")
        try:
            _, resident, shared, *_ = (process / "statm").read_text(encoding="ascii").split()
            count = os.stat(process / "fd").st_size or len(os.listdir(process / "fd"))  # noqa: PTH116, PTH208
        except OSError:  # it has ended, or hides: its next call will show that
            return
        self._calls.append(calls)
        self._memory.append((int(resident) - int(shared)) * _PAGE_BYTES)
        self._descriptors.append(count)
        if self._device_bytes is not None:
            self._on_device.append(self._device_bytes())

    def notes(self) -> Iterator[str]:
        """Return notes on growth."""
        for what, values in (("memory", self._memory), ("memory of the GPU", self._on_device)):
            if per_call := steady_growth(values, self._calls):
                yield f"leak: its {what} grows by {per_call / 1024:.0f} KiB per call"
        if per_call := steady_growth(self._descriptors, self._calls):
            yield f"leak: its open file descriptors grow by {per_call:.1f} per call"


def steady_growth(values: Sequence[int], calls: Sequence[int]) -> float:
    """Return the growth of values per call, if they grow until the end; else 0."""
    later = values[len(values) // _SKIPPED_ONE_IN :]
    if len(later) < _FEWEST:
        return 0.0
    last = len(later) - 1
    marks = [later[last * block // _BLOCKS] for block in range(_BLOCKS + 1)]
    if any(end <= begin for begin, end in itertools.pairwise(marks)):
        return 0.0
    return (later[-1] - later[0]) / (calls[-1] - calls[-len(later)])
