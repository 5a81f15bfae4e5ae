"""Looks at a task before anybody works on it, and says whether it can tell a kernel from a trick."""

from __future__ import annotations

import time
from collections.abc import Iterator

from evaluators.intake.answers import STALE, ZEROS, Bank, try_answer
from evaluators.intake.influence import find_influences
from evaluators.judge.families import CENTRED, CONSTANTS, GIVEN, PERTURBED, SPIKES, DataMaker, DataSet, most_lost
from evaluators.judge.model_state import say_changed
from evaluators.judge.problem import Problem, Tensors
from evaluators.tolerances import say_tolerance
from messages.intake import Influence, Intake, TrivialAnswer
from messages.tasks import Tolerance

_FATAL = frozenset({ZEROS, STALE})
_FAMILIES = (GIVEN, GIVEN, CENTRED, PERTURBED, SPIKES)
"""What an answer must pass; in this order, made when one gets so far."""
_TIMED_CALLS = 3


def examine(problem: Problem, tolerance: Tolerance) -> Intake:
    """Try trivial answers, and see which tensors matter.

    Raises:
        ProblemError: the reference fails on its own inputs.
    """
    maker = DataMaker(problem, tolerance)
    sets = _Sets(maker)
    first = sets.first
    if not first.inputs:
        return Intake(
            fitness="refused",
            findings=("get_inputs() gives no inputs: every call has the same result",),
            tolerance=say_tolerance(tolerance),
        )
    bank = Bank(maker)
    tried = [(name, *try_answer(name, answer, iter(sets))) for name, answer in bank.answers.items()]
    influences = find_influences(maker, first, bank.other)
    answers = tuple(answer for _, answer, _ in tried)
    findings = [
        *_about_answers(answers, frozenset(name for name, _, on_given in tried if on_given)),
        *_about_precision(first),
        *_about_influences(influences),
        *_about_constants(maker),
        *([say_changed(problem.changed_state)] if problem.changed_state else []),
    ]
    is_refused = any(answer.passes and answer.name in _FATAL for answer in answers)
    return Intake(
        fitness="refused" if is_refused else "marked" if findings else "fit",
        findings=tuple(findings),
        tolerance=say_tolerance(tolerance),
        reference_us=_reference_us(problem, first),
        answers=answers,
        influences=influences,
    )


class _Sets:
    """The data that answers are tried on, made once each and only if needed."""

    def __init__(self, maker: DataMaker) -> None:
        self._maker = maker
        self._families = iter(_FAMILIES[1:])
        self.first = maker.given()
        self._made = [self.first]

    def __iter__(self) -> Iterator[DataSet]:
        yield from self._made
        for family in self._families:
            data = self._maker.make(family) if self._maker.applies(family) else None
            if data is not None:
                self._made.append(data)
                yield data


def _about_answers(answers: tuple[TrivialAnswer, ...], right_on_given: frozenset[str]) -> Iterator[str]:
    for answer in answers:
        if answer.passes:
            yield f"{answer.name}: passes every check"
        elif answer.name in right_on_given:
            yield f"{answer.name}: right on the inputs that the task draws; only other data tells it from the reference"


def _about_precision(data: DataSet) -> Iterator[str]:
    if data.complaint is not None:
        return
    for allowed, expected in zip(data.allowed, data.expected, strict=True):
        if not allowed.exact and allowed.own_error > most_lost(allowed.dtype):
            dtype = str(allowed.dtype).removeprefix("torch.")
            yield (
                f"an output of shape {tuple(expected.shape)} loses {min(allowed.own_error, 1.0):.1%} of its size to "
                f"rounding in {dtype}: a check within that says little"
            )


def _about_influences(influences: tuple[Influence, ...]) -> Iterator[str]:
    idle = [one.tensor for one in influences if one.matters is False and one.role != "buffer"]
    if idle:
        yield f"the outputs do not depend on {', '.join(idle)}: a kernel that leaves it out would pass"


def _about_constants(maker: DataMaker) -> Iterator[str]:
    if maker.applies(CONSTANTS):
        maker.make(CONSTANTS)
    for name in maker.never_varied:
        yield f"{name} has the same value in every call: a kernel that never reads it would pass"


def _reference_us(problem: Problem, data: DataSet) -> float:
    """Return the shortest of a few calls, in us."""
    took: list[int] = []
    for _ in range(_TIMED_CALLS):
        begun = time.perf_counter_ns()
        _finish(problem.reference(data.inputs, data.state))
        took.append(time.perf_counter_ns() - begun)
    return min(took) / 1000


def _finish(outputs: Tensors) -> None:
    """Wait until a device has computed them."""
    for output in outputs:
        output.reshape(-1)[:1].cpu()
