"""Checks a candidate: calls on several input distributions, each output against the reference.

The cheapest workload comes first, and the first failing one decides. One process is called on all of them, so that
state kept between shapes shows. Modules hold their parameters, so data with other parameters takes a second process. A
candidate that is not to be confirmed is checked fully on the cheapest workload, and on the others on the task's own
distribution and one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias, TypeVar

import msgspec

from evaluators.judge.candidate.bench import OUTPUTS_REUSED, Bench, Calls
from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide, forget
from evaluators.judge.candidate.sanitizer import find_sanitizer, is_gpu_crash
from evaluators.judge.check.compare import same_bytes
from evaluators.judge.check.tolerances import STRICT, say_tolerance
from evaluators.judge.check.wrong import HELD_OUT, WrongOutputError, check_output, named, with_printed
from evaluators.judge.data.draws import CheckedDraws
from evaluators.judge.data.families import CHECKS, DRAWN, EXTRA_S, FEW_CHECKS, FEW_DRAWN, CheckData, DataSet
from evaluators.judge.data.memory import Room, room_for
from evaluators.judge.protocol import Artifact, Judged, Passed
from evaluators.judge.reference.problem import Tensors, say_changed
from evaluators.runners.base import GIVE, HOLD
from messages.tasks import TaskSpec
from messages.verdicts import CallCheck, Crashed, DidNotBuild, Rejected, TimedOut, Verdict, Wrong

_Failure: TypeAlias = Crashed | DidNotBuild | Rejected | TimedOut | Wrong
_Failed = TypeVar("_Failed", bound=_Failure)
_STALE = (
    "right on the same data where its tensors lie as in its first call: it keeps addresses, tensors or a graph of "
    "that call, and inputs and outputs lie elsewhere in each call"
)


class Case:
    """One workload: its data, and the calls of the candidate that is being checked."""

    def __init__(self, bench: Bench, task: TaskSpec, *, is_slow: bool, share: int, room: Room, is_first: bool) -> None:
        self.bench = bench
        self.is_brief = False
        """True if the candidate is checked only briefly here."""
        self._is_slow = is_slow
        is_thorough = is_first and not is_slow
        self.data = CheckData(
            bench.problem,
            task.tolerance,
            families=CHECKS if is_thorough else FEW_CHECKS,
            drawn=DRAWN if is_thorough else FEW_DRAWN,
            extra_s=0.0 if is_slow else EXTRA_S if is_first else EXTRA_S / share,
            room=room,
        )
        self._calls: Calls | None = None
        self._last: DataSet | None = None
        """Data of the last call."""
        self._reset()

    def _reset(self) -> None:
        self.checks: list[CallCheck] = []
        self._seeds: list[str] = []
        self._draws = CheckedDraws()
        self._first: DataSet | None = None
        self._first_outputs: Tensors = ()
        self.is_repeated: bool | None = None
        """True if a second call on the first data gave the same bits; None: not made yet."""
        self._is_overwritten = False
        """True if later calls changed the first outputs, so that the same memory is returned again."""

    def run(self, side: CandidateSide) -> None:
        """Call a candidate on the families that all candidates get, with the task's own parameters."""
        self._calls = Calls(self.bench, side)
        self._reset()
        for data in self._on_given_state():
            self._call(data)
            if self.is_brief:
                self._first = data
            elif self._first is None:
                self._first = data
                self._first_outputs = tuple(output.clone() for output in self._outputs)
                if self.bench.returns_outputs:
                    side.ask(HOLD)
        if not self.is_brief and self.bench.returns_outputs and len(self.checks) > 1:
            side.ask(GIVE)
            self._is_overwritten = not self._is_as_first()

    def run_rest(self, side: CandidateSide) -> None:  # noqa: ARG002 - steps look the same
        """Call it on families drawn for it, on other parameters unless it is a module, and on the first data again.

        `run_on_other_state` handles other parameters of modules.
        """
        if self._calls is None:
            return
        for data in self._drawn():
            self._call(data)
        if not self.bench.returns_outputs:
            self._call_on_other_state()
        if self.bench.problem.draws:
            self._draws.finish(self._draw_again, limit_s=self.bench.evaluation_limit_s)
        elif not (self._is_slow or self.is_brief) and self._first is not None and self.is_repeated is None:
            self._check_again(self._first, "on the same inputs it was right before")
            self.is_repeated = self._is_as_first()

    def get_ready(self, side: CandidateSide) -> None:
        """Start the process for `run_on_other_state`, if there is any other state."""
        if self.bench.returns_outputs and not self.is_brief and self.data.has_other_state:
            side.get_another_ready()

    def run_on_other_state(self, side: CandidateSide) -> None:  # noqa: ARG002 - steps look the same
        """Call a module on data with other parameters, in another process, which serves all workloads."""
        if self.bench.returns_outputs:
            self._call_on_other_state()

    def _on_given_state(self) -> Iterator[DataSet]:
        return self.data.in_brief() if self.is_brief else self.data.on_given_state()

    def _drawn(self) -> Iterator[DataSet]:
        return self.data.drawn_in_brief() if self.is_brief else self.data.drawn()

    def _on_other_state(self) -> Iterator[DataSet]:
        return iter(()) if self.is_brief else self.data.on_other_state()

    def _call_on_other_state(self) -> None:
        for data in self._on_other_state():
            self._call(data)

    def forget(self) -> bool:
        """Drop the kept data, and the last candidate's. Returns True if any was kept."""
        self._first, self._first_outputs, self._last = None, (), None
        return self.data.forget()

    def _call(self, data: DataSet) -> None:
        calls = self._calls
        if calls is None:
            return
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
        if calls.first in {None, self.bench.buffers.arrangement}:
            return wrong
        try:
            calls.on(data, at=calls.first)
            self._checked(data)
        except (CandidateFailedError, WrongOutputError):
            return wrong
        return WrongOutputError(_also(wrong.verdict, _STALE))

    def _draw_again(self, data: DataSet) -> int:
        """Call it once more on the same data. Returns the time in ns."""
        if self._calls is None:
            return 0
        self._calls.on(data)
        self._checked(data)
        return self._calls.last.elapsed_ns

    def _check_again(self, data: DataSet, was_right: str) -> None:
        if self._calls is None:
            return
        self._calls.on(data)
        try:
            self._checked(data)
        except WrongOutputError as wrong:
            raise WrongOutputError(_also(wrong.verdict, was_right)) from None

    def call(self, side: CandidateSide, *, other_state: bool = False) -> None:
        """Call a candidate on data of every family, without checking its outputs."""
        calls = Calls(self.bench, side)
        for data in self._on_other_state() if other_state else chain(self._on_given_state(), self._drawn()):
            calls.on(data)

    def call_as_failed(self, side: CandidateSide) -> None:
        """Call a candidate on the data of its last call."""
        if self._last is not None:
            Calls(self.bench, side).on(self._last)
            self._checked(self._last)

    def revisit(self, side: CandidateSide) -> None:  # noqa: ARG002 - steps look the same
        """Call it on the first data again, after other workloads, so that its kept state must be valid for this one."""
        if self._first is None:
            return
        was_right = "it was right here before it was called on other workloads"
        try:
            self._check_again(self._first, was_right)
        except CandidateFailedError as failure:
            raise CandidateFailedError(_also(failure.verdict, was_right)) from None

    @property
    def seeds_note(self) -> str:
        """The note with the data on which the candidate was checked."""
        where = f" on {self._called!r}" if self._called else ""
        return f"checked{where or ' on'} (family and seed): {', '.join(self._seeds)}"

    @property
    def notes(self) -> Iterator[str]:
        """Further notes on the checks here."""
        where = f"workload {self._called!r}: " if self._called else ""
        if self.bench.problem.draws:
            yield f"{where}{self._draws.note}"
        for family, why in sorted(self.data.skipped.items()):
            yield f"{where}not checked on {family} inputs: {why}"
        for name in self.data.never_varied:
            yield f"{where}`{name}` had the same value in every call: a kernel that never reads it passes, too"
        if self._calls is not None and (self._is_overwritten or self._calls.is_reusing):
            yield OUTPUTS_REUSED
        if self.is_repeated is False:
            yield f"{where}not deterministic: two calls on the same inputs differ, within the tolerance"

    @property
    def _called(self) -> str:
        return HELD_OUT if self.bench.is_hidden else self.bench.workload

    @property
    def _outputs(self) -> Tensors:
        return self.bench.buffers.results

    def _checked(self, data: DataSet) -> CallCheck:
        if data.complaint is not None:
            if said := data.complaint(self._outputs):
                raise WrongOutputError(Wrong(reason=said, family=data.family))
            self._draws.saw(data, self._outputs)
            return CallCheck(family=data.family, max_abs_error=0.0, error_ratio=0.0, workload=self._called)
        pairs = zip(self.bench.output_names, self._outputs, data.expected, data.allowed, strict=True)
        found = [check_output(data.family, *pair) for pair in pairs]
        worst = max(found, key=lambda check: check.error_ratio)
        return msgspec.structs.replace(worst, workload=self._called)

    def _is_as_first(self) -> bool:
        return all(same_bytes(now, then) for now, then in zip(self._outputs, self._first_outputs, strict=True))


def _also(verdict: _Failed, what: str) -> _Failed:
    return msgspec.structs.replace(verdict, reason=f"{verdict.reason}; {what}")


_DOWNGRADE = 30.0
"""Factor on the reference's own error above which a candidate must have computed in a lower precision."""

_KEPT = (
    "in a process of its own it is right there: what it keeps from other workloads does not fit, "
    "or it is not right each time"
)
Glance: TypeAlias = Callable[[CandidateSide], Verdict | None]


class Checker:
    """Checks candidates of one task, one after the other; `is_slow`: each input distribution is used only once."""

    def __init__(self, benches: Sequence[Bench], task: TaskSpec, *, is_slow: bool) -> None:
        self._benches = benches
        self._is_slow = is_slow
        self._tolerance = task.tolerance
        by_cost = sorted(benches, key=lambda bench: (bench.is_hidden, bench.reference_ns))
        self._room = room_for([bench.problem for bench in benches])
        self._cases = [
            Case(bench, task, is_slow=is_slow, share=len(benches), room=self._room, is_first=not place)
            for place, bench in enumerate(by_cost)
        ]

    def check(self, artifact: Artifact, *, is_brief: bool = False, glance: Glance | None = None) -> Passed | Judged:
        """Check one candidate: on the cheapest workload first, on hidden ones last.

        A failure after a call on a hidden workload is attributed to that workload, since it may reveal it.

        Args:
            artifact: the candidate's artifact.
            is_brief: check it briefly on all but the cheapest workload.
            glance: times a candidate that passed the families common to all; its verdict ends the checks.
        """
        forget(artifact)
        for case in self._cases[1:]:
            case.is_brief = is_brief
        step: _Step | None = None
        with self._cases[0].bench.side(artifact, others=self._benches) as side:
            try:
                side.load()
                for step in _runs(self._cases, is_whole=glance is None):
                    step.take(side)
                if glance is not None and (given_up := glance(side)) is not None:
                    return Judged(verdict=with_printed(given_up, side.printed))
                for step in _further(self._cases, has_rest=glance is not None):
                    step.take(side)
                return self._passed(self._cases, side)
            except WrongOutputError as wrong:
                verdict: _Failure = with_printed(wrong.verdict, side.printed)
            except CandidateFailedError as failure:
                verdict = failure.verdict
        return Judged(verdict=verdict if step is None else self._explained(artifact, verdict, step, side))

    def _explained(self, artifact: Artifact, verdict: _Failure, step: _Step, side: CandidateSide) -> _Failure:
        bench = step.told.bench
        if not bench.is_hidden:
            verdict = self._looked_into(artifact, _sanitized(side, verdict), step, side)
        return named(verdict, bench.workload, hidden=bench.is_hidden)

    def _looked_into(self, artifact: Artifact, verdict: _Failure, step: _Step, side: CandidateSide) -> _Failure:
        if isinstance(verdict, Crashed) and side.segfaulted:
            return self._explain_segfault(artifact, verdict, self._cases[: self._cases.index(step.case) + 1])
        may_keep = isinstance(verdict, Wrong | Crashed) and step.comes_after_others
        return _also(verdict, _KEPT) if may_keep and self._is_right_alone(artifact, step.case) else verdict

    def _explain_segfault(self, artifact: Artifact, crashed: Crashed, cases: Sequence[Case]) -> Crashed:
        """Repeat the calls with writable inputs, and report whether that cures the crash."""
        with cases[0].bench.side(artifact, private_inputs=True, others=self._benches) as side:
            try:
                side.load()
                for case in cases:
                    case.call(side)
                for case in cases:
                    case.call(side, other_state=True)
            except (CandidateFailedError, WrongOutputError):
                return crashed
        reason = f"{crashed.reason}: it writes to its inputs, which are mapped read-only"
        return msgspec.structs.replace(crashed, reason=reason)

    def _is_right_alone(self, artifact: Artifact, case: Case) -> bool:
        """Return True if it is right on its failed data without earlier calls: then it kept state that is not valid."""
        with case.bench.side(artifact, others=self._benches) as side:
            try:
                side.load()
                case.call_as_failed(side)
            except (CandidateFailedError, WrongOutputError):
                return False
        return True

    def forget(self) -> bool:
        """Drop the data that is kept for the next candidates, and keep none for now. Returns True if there was any."""
        self._room.close()
        were_there = [case.forget() for case in self._cases]
        return any(were_there)

    def keep(self, *, less: bool) -> None:
        """Keep data for the next candidates again: as much as before, or half as much from now on."""
        self._room.reopen(halved=less)

    @property
    def isolation(self) -> tuple[str, ...]:
        """Return the layers that isolated the last candidate's process."""
        return self._cases[0].bench.isolation

    def _passed(self, cases: Sequence[Case], side: CandidateSide) -> Passed:
        is_hiding = any(case.bench.is_hidden for case in cases)
        same = [case.is_repeated for case in cases if case.is_repeated is not None]
        return Passed(
            checks=tuple(check for case in cases for check in case.checks),
            reference_dtype=cases[0].data.reference_dtype,
            deterministic=all(same) if same else None,
            notes=tuple(self._notes(cases)),
            printed="" if is_hiding else side.printed,
        )

    def _notes(self, cases: Sequence[Case]) -> Iterator[str]:
        for case in cases:
            yield case.seeds_note
        yield f"tolerance: {say_tolerance(self._tolerance)}"
        yield from dict.fromkeys(note for case in cases for note in case.notes)
        loss = max(check.own_error_ratio for case in cases for check in case.checks)
        if self._tolerance.profile != STRICT and loss > _DOWNGRADE:
            yield f"precision_downgrade: it errs by {loss:.3g} times what the reference loses in its own dtype"
        if self._is_slow:
            calls = sum(len(case.checks) for case in cases)
            yield f"checked in {calls} calls, one per input distribution: each takes long here"
        if changed := cases[0].bench.problem.changed_state:
            yield say_changed(changed)
        if cases[0].bench.buffers.has_few_places:
            yield "the tensors are so large that each input and output lies at one of two addresses, not of three"
        if not cases[0].bench.problem.trains:
            yield "the reference runs in eval mode: in training mode it is random"


def _sanitized(side: CandidateSide, verdict: _Failure) -> _Failure:
    if not isinstance(verdict, Crashed) or not is_gpu_crash(verdict) or not (path := find_sanitizer()):
        return verdict
    return side.sanitized(verdict, path)


class _Step(msgspec.Struct, frozen=True):
    case: Case
    take: Callable[[CandidateSide], None]
    told: Case
    """Workload that a failure is attributed to: after a call on a hidden workload, that one."""
    comes_after_others: bool = False
    """True if its process was called on other workloads before."""


def _runs(cases: Sequence[Case], *, is_whole: bool) -> Iterator[_Step]:
    hidden = _first_hidden(cases)
    for case in cases:
        told = hidden if hidden and case.bench.is_hidden else case
        yield _Step(case, case.run, told, case is not cases[0])
        if is_whole:
            yield _Step(case, case.run_rest, told, case is not cases[0])


def _further(cases: Sequence[Case], *, has_rest: bool) -> Iterator[_Step]:
    """Yield the further steps for a candidate that was right so far, beginning with the rest of `_runs`."""
    hidden = _first_hidden(cases)
    yield from (_Step(case, case.get_ready, hidden or case) for case in cases)
    if has_rest:
        yield from (_Step(case, case.run_rest, hidden or case, len(cases) > 1) for case in cases)
    # A failure in a second visit reports that the first visit was right.
    yield from (_Step(case, case.revisit, hidden or case) for case in cases[:-1])
    yield from (_Step(case, case.run_on_other_state, hidden or case, case is not cases[0]) for case in cases)


def _first_hidden(cases: Sequence[Case]) -> Case | None:
    return next((case for case in cases if case.bench.is_hidden), None)
