"""One workload while candidates are checked: its data, and what the one that is being checked does on it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from evaluators.judge.bench import OUTPUTS_REUSED, Bench, Calls
from evaluators.judge.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.check_data import CHECKS, DRAWN, EXTRA_S, FEW_CHECKS, FEW_DRAWN, CheckData
from evaluators.judge.compare import same_bytes
from evaluators.judge.draws import CheckedDraws
from evaluators.judge.families import DataSet
from evaluators.judge.keeping import Room
from evaluators.judge.naming import HELD_OUT
from evaluators.judge.problem import Tensors
from evaluators.judge.wrong import WrongOutputError, check_output
from messages.tasks import TaskSpec
from messages.verdicts import CallCheck, Wrong

_STALE = (
    "right on the same data where its tensors lie as in its first call: it keeps addresses, tensors or a graph of "
    "that call, and inputs and outputs lie elsewhere in each call"
)


class _First:
    """The first call of a candidate."""

    def __init__(self) -> None:
        self.data: DataSet | None = None
        self.outputs: Tensors = ()
        """What it wrote then."""
        self.is_repeated: bool | None = None
        """Whether a second call on the same data gave the same bits; null: not made yet."""
        self.is_overwritten = False
        """Whether what it returned was another thing after later calls: it hands out the same memory again."""


class Case:
    """One workload: its data, and what the candidate that is being checked did on it."""

    def __init__(self, bench: Bench, task: TaskSpec, *, is_slow: bool, share: int, room: Room, is_first: bool) -> None:
        """Prepare.

        Args:
            bench: the workload's.
            task: for its tolerances.
            is_slow: see `Checker`.
            share: how many workloads share the time for further families.
            room: for data, which they share.
            is_first: whether it is the cheapest: it is checked on as many families as the one workload of a task, each
                other one on fewer.
        """
        self.bench = bench
        self.is_brief = False
        """Whether the candidate is checked on little here."""
        self._is_slow = is_slow
        is_thorough = is_first and not is_slow
        self._data = CheckData(
            bench.problem,
            task.tolerance,
            families=CHECKS if is_thorough else FEW_CHECKS,
            drawn=DRAWN if is_thorough else FEW_DRAWN,
            extra_s=0.0 if is_slow else EXTRA_S if is_first else EXTRA_S / share,
            room=room,
        )
        self.checks: list[CallCheck] = []
        self._seeds: list[str] = []
        self._first = _First()
        self._draws = CheckedDraws()
        self._calls: Calls | None = None
        self._last: DataSet | None = None
        """What it was called on last."""

    def run(self, side: CandidateSide) -> None:
        """Call a candidate on what every one is called on, with the task's own parameters.

        Raises:
            CandidateFailedError: a call fails.
            WrongOutputError: an output is wrong.
        """
        self._calls = Calls(self.bench, side)
        self._first, self._draws = _First(), CheckedDraws()
        self.checks, self._seeds = [], []
        for data in self._on_given_state():
            self._call(self._calls, data)
            if self.is_brief:
                self._first.data = data
            else:
                self._keep_first(side, self._first, data)
        if not self.is_brief and self.bench.returns_outputs and len(self.checks) > 1:
            side.give_kept()
            self._first.is_overwritten = not self._holds(self._first.outputs)

    def run_rest(self, side: CandidateSide) -> None:  # noqa: ARG002 - steps look the same
        """Call it on data of families that are drawn for it, then on the first once more.

        And on other parameters, unless it is a module: `run_on_other_state` does that.

        Raises:
            CandidateFailedError: a call fails.
            WrongOutputError: an output is wrong.
        """
        if self._calls is None:
            return
        for data in self._drawn():
            self._call(self._calls, data)
        if not self.bench.returns_outputs:
            self._call_on_other_state()
        if self.bench.problem.draws:
            self._draws.finish(self._draw_again, limit_s=self.bench.evaluation_limit_s)
        elif not (self._is_slow or self.is_brief):
            self._repeat(self._calls, self._first)

    def get_ready(self, side: CandidateSide) -> None:
        """Have the process begin that `run_on_other_state` will take, if any."""
        if self.bench.returns_outputs and not self.is_brief and self._data.has_other_state:
            side.get_another_ready()

    def run_on_other_state(self, side: CandidateSide) -> None:  # noqa: ARG002 - steps look the same
        """Call a module on data with other parameters, which takes another process: one for all workloads.

        Raises:
            CandidateFailedError: a call fails.
            WrongOutputError: an output is wrong.
        """
        if self.bench.returns_outputs:
            self._call_on_other_state()

    def _on_given_state(self) -> Iterator[DataSet]:
        return self._data.in_brief() if self.is_brief else self._data.on_given_state()

    def _drawn(self) -> Iterator[DataSet]:
        return self._data.drawn_in_brief() if self.is_brief else self._data.drawn()

    def _on_other_state(self) -> Iterator[DataSet]:
        return iter(()) if self.is_brief else self._data.on_other_state()

    def _call_on_other_state(self) -> None:
        for data in self._on_other_state():
            if self._calls is not None:
                self._call(self._calls, data)

    def forget(self) -> bool:
        """Drop the data that is kept, and what the last candidate was called on. Returns whether any was kept."""
        self._first, self._last = _First(), None
        return self._data.forget()

    def _call(self, calls: Calls, data: DataSet) -> None:
        self._seeds.append(f"{data.family} {data.seed}")
        self._last = data
        calls.on(data)
        try:
            self.checks.append(self._checked(data))
        except WrongOutputError as wrong:
            raise self._explained(calls, data, wrong) from None
        if not self.is_brief:
            calls.look_for_reuse()

    def _explained(self, calls: Calls, data: DataSet, wrong: WrongOutputError) -> WrongOutputError:
        """Say of a wrong output whether it is right where the tensors lay in the first call."""
        if calls.first in {None, self.bench.buffers.arrangement}:
            return wrong
        try:
            calls.on(data, at=calls.first)
            self._checked(data)
        except (CandidateFailedError, WrongOutputError):
            return wrong
        reason = f"{wrong.verdict.reason}; {_STALE}"
        return WrongOutputError(msgspec.structs.replace(wrong.verdict, reason=reason))

    def _draw_again(self, data: DataSet) -> int:
        """Call it once more on data that it was called on before. Returns how long that took, in ns."""
        if self._calls is None:
            return 0
        self._calls.on(data)
        self._checked(data)
        return self._calls.last.elapsed_ns

    def call(self, side: CandidateSide, *, other_state: bool = False) -> None:
        """Call a candidate on data of every family, whatever it writes.

        Args:
            side: the candidate.
            other_state: on data with other parameters, else on the rest.

        Raises:
            CandidateFailedError: a call fails.
            WrongOutputError: it writes beside its outputs.
        """
        calls = Calls(self.bench, side)
        for data in self._on_other_state() if other_state else chain(self._on_given_state(), self._drawn()):
            calls.on(data)

    def call_as_failed(self, side: CandidateSide) -> None:
        """Call a candidate on the data set that it was called on last.

        Raises:
            CandidateFailedError: the call fails.
            WrongOutputError: an output is wrong.
        """
        if self._last is not None:
            Calls(self.bench, side).on(self._last)
            self._checked(self._last)

    def revisit(self, side: CandidateSide) -> None:  # noqa: ARG002 - steps look the same
        """Call it on the first data again, after it was called on other workloads: what it keeps must fit this one.

        Raises:
            CandidateFailedError: the call fails.
            WrongOutputError: an output is wrong.
        """
        if self._calls is None or self._first.data is None:
            return
        was_right = "it was right here before it was called on other workloads"
        try:
            self._calls.on(self._first.data)
            self._checked(self._first.data)
        except WrongOutputError as wrong:
            reason = f"{wrong.verdict.reason}; {was_right}"
            raise WrongOutputError(msgspec.structs.replace(wrong.verdict, reason=reason)) from None
        except CandidateFailedError as failure:
            reason = f"{failure.verdict.reason}; {was_right}"
            raise CandidateFailedError(msgspec.structs.replace(failure.verdict, reason=reason)) from None

    @property
    def reference_dtype(self) -> str:
        """Return the precision of the expected values."""
        return self._data.reference_dtype

    @property
    def is_repeated(self) -> bool | None:
        """Return whether a second call on the same data gave the same bits; null: none was made."""
        return self._first.is_repeated

    @property
    def seeds_note(self) -> str:
        """Say what the candidate was checked on."""
        where = f" on {self._called!r}" if self._called else ""
        return f"checked{where or ' on'} (family and seed): {', '.join(self._seeds)}"

    @property
    def notes(self) -> Iterator[str]:
        """Say what else is to be known of the checks here."""
        where = f"workload {self._called!r}: " if self._called else ""
        if self.bench.problem.draws:
            yield f"{where}{self._draws.note}"
        for family, why in sorted(self._data.skipped.items()):
            yield f"{where}not checked on {family} inputs: {why}"
        for name in self._data.never_varied:
            yield f"{where}`{name}` had the same value in every call: a kernel that never reads it passes, too"
        if self._calls is not None and (self._first.is_overwritten or self._calls.is_reusing):
            yield OUTPUTS_REUSED
        if self._first.is_repeated is False:
            yield f"{where}not deterministic: two calls on the same inputs differ, within the tolerance"

    @property
    def _called(self) -> str:
        return HELD_OUT if self.bench.is_hidden else self.bench.workload

    def _keep_first(self, side: CandidateSide, first: _First, data: DataSet) -> None:
        """Keep what the first call gave.

        Raises:
            CandidateFailedError: the candidate does not answer.
        """
        if first.data is None:
            first.data = data
            first.outputs = tuple(output.clone() for output in self._outputs)
            if self.bench.returns_outputs:
                side.keep_returned()

    @property
    def _outputs(self) -> Tensors:
        return self.bench.buffers.results

    def _checked(self, data: DataSet) -> CallCheck:
        """Compare the outputs of the last call.

        Raises:
            WrongOutputError: one is wrong.
        """
        if data.complaint is not None:
            if said := data.complaint(self._outputs):
                raise WrongOutputError(Wrong(reason=said, family=data.family))
            self._draws.saw(data, self._outputs)
            return CallCheck(family=data.family, max_abs_error=0.0, error_ratio=0.0, workload=self._called)
        found = [
            check_output(data.family, name, out, expected, allowed)
            for name, out, expected, allowed in zip(
                self.bench.output_names, self._outputs, data.expected, data.allowed, strict=True
            )
        ]
        worst = max(found, key=lambda check: check.error_ratio)
        return msgspec.structs.replace(worst, workload=self._called)

    def _repeat(self, calls: Calls, first: _First) -> None:
        """Call it once more on data that it was right on, unless that was done, and see whether it gives the same bits.

        Raises:
            CandidateFailedError: the call fails.
            WrongOutputError: it is wrong this time.
        """
        if first.data is None or first.is_repeated is not None:
            return
        calls.on(first.data)
        try:
            self._checked(first.data)
        except WrongOutputError as wrong:
            reason = f"{wrong.verdict.reason}; on the same inputs it was right before"
            raise WrongOutputError(msgspec.structs.replace(wrong.verdict, reason=reason)) from None
        first.is_repeated = self._holds(first.outputs)

    def _holds(self, outputs: Tensors) -> bool:
        """Say whether the last call's outputs are these, bit by bit."""
        return all(same_bytes(now, then) for now, then in zip(self._outputs, outputs, strict=True))
