"""Is a candidate correct? Calls on several families of data, each output against the reference in float64.

Of several workloads the cheapest comes first, and the first failing one decides. One process is called on all of them,
so that what a candidate keeps from one shape to the next is seen. A module is called in two: its parameters are its
own once it is loaded, so data with other ones, of all workloads, comes in a second process. A candidate that is not to
be confirmed is checked like that on the cheapest workload; on each other one in brief: on what the task draws, and on
one family more.

A checking judge has low priority: it computes while another judge times, on what that one leaves free.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from evaluators.judge.bench import Bench
from evaluators.judge.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.case import Case
from evaluators.judge.keeping import room_for
from evaluators.judge.kernel_cache import forget
from evaluators.judge.model_state import say_changed
from evaluators.judge.naming import named, with_printed
from evaluators.judge.protocol import Artifact, Judged, Passed
from evaluators.judge.sanitizer import find_sanitizer, is_gpu_crash
from evaluators.judge.wrong import WrongOutputError
from evaluators.tolerances import STRICT, say_tolerance
from messages.tasks import TaskSpec
from messages.verdicts import Crashed, DidNotBuild, Rejected, TimedOut, Verdict, Wrong

_DOWNGRADE = 30.0
"""Times what the reference itself loses: with so large an error a candidate computes in a lower precision."""

_KEPT = (
    "in a process of its own it is right there: what it keeps from other workloads does not fit, "
    "or it is not right each time"
)
Glance: TypeAlias = Callable[[CandidateSide], Verdict | None]
_Failure: TypeAlias = Crashed | DidNotBuild | Rejected | TimedOut | Wrong


class Checker:
    """Checks candidates of one task, one after the other."""

    def __init__(self, benches: Sequence[Bench], task: TaskSpec, *, is_slow: bool) -> None:
        """Prepare.

        Args:
            benches: of the task's workloads, by their numbers.
            task: for its tolerances.
            is_slow: candidates are so slow here that each family of data is tried once only.
        """
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
        """Say that it passed, or what is wrong with it: on the cheapest workload first, on the hidden ones at last.

        What fails once a hidden workload was called may tell of it, and is told as if it had failed there.

        Args:
            artifact: what was built.
            is_brief: check it in brief on all but the cheapest workload.
            glance: asked about what was right where every candidate is called; what it says is the verdict, and nothing
                more is checked.
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
                given_up = glance(side) if glance is not None else None
                for step in _further(self._cases, has_rest=glance is not None) if given_up is None else ():
                    step.take(side)
                return self._passed(self._cases, side) if given_up is None else _given_up(given_up, side)
            except WrongOutputError as wrong:
                verdict: _Failure = with_printed(wrong.verdict, side.printed)
            except CandidateFailedError as failure:
                verdict = failure.verdict
            is_segfault = isinstance(verdict, Crashed) and side.segfaulted
        if step is None:
            return Judged(verdict=verdict)
        told = step.told
        if not told.bench.is_hidden:
            verdict = self._explained(artifact, _sanitized(side, verdict), step, is_segfault=is_segfault)
        return Judged(verdict=named(verdict, told.bench.workload, hidden=told.bench.is_hidden))

    def _explained(self, artifact: Artifact, verdict: _Failure, step: _Step, *, is_segfault: bool) -> _Failure:
        """Say more of what failed on a workload, if another process of the candidate can tell."""
        if isinstance(verdict, Crashed) and is_segfault:
            return self._explain_segfault(artifact, verdict, self._cases[: self._cases.index(step.case) + 1])
        may_keep = isinstance(verdict, Wrong | Crashed) and step.comes_after_others
        if may_keep and self._is_right_alone(artifact, step.case):
            return msgspec.structs.replace(verdict, reason=f"{verdict.reason}; {_KEPT}")
        return verdict

    def _explain_segfault(self, artifact: Artifact, crashed: Crashed, cases: Sequence[Case]) -> Crashed:
        """Try the same calls once more with inputs that may be written to: does that cure it?"""
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
        """Say whether it is right on what it failed on where nothing came before: then it kept what does not fit."""
        with case.bench.side(artifact, others=self._benches) as side:
            try:
                side.load()
                case.call_as_failed(side)
            except (CandidateFailedError, WrongOutputError):
                return False
        return True

    def forget(self) -> bool:
        """Drop the data that is kept for the next candidates, and keep none for now. Returns whether there was any."""
        self._room.close()
        were_there = [case.forget() for case in self._cases]
        return any(were_there)

    def keep(self, *, less: bool) -> None:
        """Keep data for the next candidates again: as much as before, or half as much from now on."""
        self._room.reopen(halved=less)

    @property
    def isolation(self) -> tuple[str, ...]:
        """Return the layers that the last candidate's process was behind."""
        return self._cases[0].bench.isolation

    def _passed(self, cases: Sequence[Case], side: CandidateSide) -> Passed:
        is_hiding = any(case.bench.is_hidden for case in cases)
        same = [case.is_repeated for case in cases if case.is_repeated is not None]
        return Passed(
            checks=tuple(check for case in cases for check in case.checks),
            reference_dtype=cases[0].reference_dtype,
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
            yield f"checked in {calls} calls, one per family of data: each takes long here"
        if changed := cases[0].bench.problem.changed_state:
            yield say_changed(changed)
        if cases[0].bench.buffers.has_few_places:
            yield "the tensors are so large that each input and output lies at one of two addresses, not of three"
        if not cases[0].bench.problem.trains:
            yield "the reference runs in eval mode: in training mode it is random"


def _given_up(verdict: Verdict, side: CandidateSide) -> Judged:
    return Judged(verdict=with_printed(verdict, side.printed))


def _sanitized(side: CandidateSide, verdict: _Failure) -> _Failure:
    """Have a crash on a GPU explained, where compute-sanitizer is installed."""
    if not isinstance(verdict, Crashed) or not is_gpu_crash(verdict) or not (path := find_sanitizer()):
        return verdict
    return side.sanitized(verdict, path)


class _Step(msgspec.Struct, frozen=True):
    """Part of a check, on one workload."""

    case: Case
    take: Callable[[CandidateSide], None]
    told: Case
    """Where what fails is told to have failed: once a hidden workload was called, there."""
    comes_after_others: bool = False
    """Whether its process was called on other workloads before."""


def _runs(cases: Sequence[Case], *, is_whole: bool) -> Iterator[_Step]:
    """Yield what is done first; the whole of it, or what every candidate is called on."""
    hidden = _first_hidden(cases)
    for case in cases:
        told = hidden if hidden and case.bench.is_hidden else case
        yield _Step(case, case.run, told, case is not cases[0])
        if is_whole:
            yield _Step(case, case.run_rest, told, case is not cases[0])


def _further(cases: Sequence[Case], *, has_rest: bool) -> Iterator[_Step]:
    """Yield what is done with what was right until then; first what is left of `_runs`."""
    hidden = _first_hidden(cases)
    yield from (_Step(case, case.get_ready, hidden or case) for case in cases)
    if has_rest:
        yield from (_Step(case, case.run_rest, hidden or case, len(cases) > 1) for case in cases)
    # What is wrong in a second visit says itself that it was right in the first.
    yield from (_Step(case, case.revisit, hidden or case) for case in cases[:-1])
    yield from (_Step(case, case.run_on_other_state, hidden or case, case is not cases[0]) for case in cases)


def _first_hidden(cases: Sequence[Case]) -> Case | None:
    return next((case for case in cases if case.bench.is_hidden), None)
