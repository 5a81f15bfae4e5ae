"""Examines a task: which inputs its outputs depend on, and whether a trivial answer would pass.

Integers take values only as the task itself draws them; inputs that are the same in every draw stay unchanged.

Of a table, a call may need only some rows; of a paged cache, those of its sequences. A floor or a roofline that counts
whole tensors would refuse the best kernels there. So the check looks for lines of an input that are not needed: lines
with zero gradient get other values, all at once, and if the outputs stay the same bit by bit they are not needed. If
the outputs change, the lines are halved and tried again, a bounded number of times. Parts that are not shown to be idle
count as needed. Integers and masks always count, and so do parameters.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TypeAlias

import msgspec
import torch

from evaluators.judge.check.compare import same_bytes
from evaluators.judge.check.tolerances import say_tolerance
from evaluators.judge.data import distributions
from evaluators.judge.data.arena import total_bytes
from evaluators.judge.data.distributions import size_of
from evaluators.judge.data.draws import Draws
from evaluators.judge.data.families import (
    CENTRED,
    CONSTANTS,
    GIVEN,
    PERTURBED,
    SPIKES,
    DataMaker,
    DataSet,
    generator_for,
    most_lost,
    new_seed,
)
from evaluators.judge.reference.problem import Problem, ProblemError, Tensors, say_changed
from messages.tasks import Influence, Intake, TensorSpec, Tolerance, TrivialAnswer

Answer: TypeAlias = Callable[[DataSet], Tensors]
"""Returns the outputs of an answer for a data set."""

_CALLS = 64
"""Calls for random outputs: an answer that is the same in this many calls is not random."""

ZEROS, STALE, MEAN = "zeros", "the output for other inputs", "the mean everywhere"


class Bank:
    """Trivial answers to a task."""

    def __init__(self, maker: DataMaker) -> None:
        """Run the reference once, on inputs that no answer is tried on.

        Raises:
            ProblemError: it fails.
        """
        problem = maker.problem
        other = maker.bare("given", new_seed())
        stale = problem.reference(other.inputs, other.state)
        self.other = other
        self.answers: dict[str, Answer] = {
            ZEROS: lambda _: tuple(torch.zeros_like(output) for output in stale),
            STALE: lambda _: stale,
            MEAN: lambda _: tuple(_mean(output) for output in stale),
        }
        for index, spec in enumerate(problem.tensors[: len(other.inputs)]):
            if all(_fits(other.inputs[index], output) for output in stale):
                self.answers[f"input {spec.name}"] = _input(index, copies=len(stale))


def try_answer(name: str, answer: Answer, sets: Iterator[DataSet]) -> tuple[TrivialAnswer, bool]:
    """Test an answer on data sets until it fails.

    Returns:
        The result, and whether it passed at least on the first data set.
    """
    draws = Draws()
    for place, data in enumerate(sets):
        wrong = wrong_share(answer(data), data)
        if wrong > 0:
            return TrivialAnswer(name=name, passes=False, wrong_share=wrong), place > 0
        if data.positions is not None:
            draws.add(data.positions([answer(data)] * _CALLS))
    if draws.complaint():
        return TrivialAnswer(name=name, passes=False, wrong_share=1.0), True
    return TrivialAnswer(name=name, passes=True, wrong_share=0.0), True


def wrong_share(outputs: Tensors, data: DataSet) -> float:
    """Return the share of all output elements that the check finds wrong: all, if it names no elements."""
    if data.complaint is not None:
        return 1.0 if data.complaint(outputs) else 0.0
    pairs = zip(outputs, data.expected, data.allowed, strict=True)
    wrong = sum(int(allowed.errors(output, expected).wrong.sum()) for output, expected, allowed in pairs)
    return wrong / sum(output.numel() for output in outputs)


def _input(index: int, *, copies: int) -> Answer:
    return lambda data: (data.inputs[index],) * copies


def _fits(tensor: torch.Tensor, output: torch.Tensor) -> bool:
    return tensor.shape == output.shape and tensor.dtype == output.dtype


def _mean(output: torch.Tensor) -> torch.Tensor:
    mean = float(output.double().nan_to_num().mean())
    return torch.full_like(output, mean if output.is_floating_point() else math.floor(mean + 0.5))


_TIME_S = 5.0
"""Seconds after which no further tensor is examined."""


class _Change(msgspec.Struct, frozen=True):
    influence: Influence
    """The result, as far as possible before the reference runs."""
    inputs: Tensors
    state: Tensors


def find_influences(maker: DataMaker, data: DataSet, other: DataSet) -> tuple[Influence, ...]:
    """Return for every input, parameter and buffer whether the outputs depend on it."""
    begun = time.perf_counter()
    found: list[Influence] = []
    for change in _changes(maker, data, other):
        influence = change.influence
        if not influence.why_not and time.perf_counter() - begun > _TIME_S:
            influence = msgspec.structs.replace(influence, why_not="there was no time left")
        found.append(influence if influence.why_not else _tried(maker, data, change))
    return tuple(found)


def _tried(maker: DataMaker, data: DataSet, change: _Change) -> Influence:
    try:
        outputs = maker.problem.reference(change.inputs, change.state)
    except ProblemError as error:
        return msgspec.structs.replace(change.influence, why_not=f"the reference fails: {error}"[:200])
    moved = wrong_share(outputs, data)
    return msgspec.structs.replace(change.influence, matters=moved > 0, moved_share=moved)


def _changes(maker: DataMaker, data: DataSet, other: DataSet) -> Iterator[_Change]:
    problem = maker.problem
    names = [spec.name for spec in problem.tensors]
    for index, tensor in enumerate(data.inputs):
        fresh = _other_input(data, index, other.inputs[index])
        influence = Influence(
            tensor=names[index],
            role="input",
            matters=None,
            why_not="" if fresh is not None else "it holds integers, and every draw has the same",
        )
        inputs = (*data.inputs[:index], tensor if fresh is None else fresh, *data.inputs[index + 1 :])
        yield _Change(influence, inputs, data.state)
    for index, tensor in enumerate(data.state):
        influence = Influence(
            tensor=names[len(data.inputs) + index],
            role="parameter" if index < problem.parameter_count else "buffer",
            matters=None,
            why_not="" if tensor.is_floating_point() else "it holds no floating-point numbers",
        )
        fresh = tensor if influence.why_not else _redrawn(tensor, data.seed + index)
        yield _Change(influence, data.inputs, (*data.state[:index], fresh, *data.state[index + 1 :]))


def _other_input(data: DataSet, index: int, drawn: torch.Tensor) -> torch.Tensor | None:
    """Return other values for an input; None if none are known to be valid."""
    tensor = data.inputs[index]
    if not same_bytes(drawn, tensor):
        return drawn
    if not tensor.is_floating_point():
        return None
    if distributions.is_binary(tensor):
        return distributions.zeros_and_ones(tensor, generator_for(data.seed, index, tensor))
    return _redrawn(tensor, data.seed + index)


def _redrawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    noise = torch.randn(
        tensor.shape, generator=generator_for(seed, 0, tensor), device=tensor.device, dtype=tensor.dtype
    )
    return tensor + noise * distributions.size_of(tensor).to(tensor.dtype)


_LINE_BYTES = 128
"""Cache line of a GPU: reading a part of it costs the whole line."""
_LEAST_BYTES = 1 << 20
"""Smaller inputs are counted as a whole: they hardly change a floor."""
_DRAWS = 5
_TESTS = 24
"""Most calls of the reference for one input of one draw."""
_LARGE = 8.0
"""Value put into lines that may be idle, as a multiple of the root mean square."""


class Reads:
    """Shares of the bytes of all inputs and parameters that the outputs of some draws depend on."""

    def __init__(self, problem: Problem) -> None:
        """Examine as many draws as fit in the time.

        Raises:
            ProblemError: the reference fails on its own inputs.
        """
        self.shares: list[float] = []
        """Share for each draw; 1 if nothing is known to be idle."""
        until = time.monotonic() + _TIME_S
        while len(self.shares) < _DRAWS and (not self.shares or time.monotonic() < until):
            self.shares.append(_share(problem, until))

    @property
    def least(self) -> float:
        """Return the smallest share, on which a floor may rely."""
        return min(self.shares)

    @property
    def mean(self) -> float:
        """Return the mean share, for a roofline."""
        return fmean(self.shares)


def bytes_read(tensors: Sequence[TensorSpec], share: float) -> int:
    """Return the bytes of a call's tensors, counting only a share of inputs and parameters."""
    read = total_bytes([tensor for tensor in tensors if tensor.role != "output"])
    return total_bytes(tensors) - round((1.0 - share) * read)


def _share(problem: Problem, until: float) -> float:
    seed = new_seed()
    inputs = problem.inputs(seed)
    read_bytes = sum(tensor.nbytes for tensor in (*inputs, *problem.state))
    large = [i for i, each in enumerate(inputs) if each.is_floating_point() and each.nbytes >= _LEAST_BYTES]
    if not large:
        return 1.0
    outputs = problem.reference(inputs, problem.state)
    try:
        gradients = problem.gradients(inputs)
    except ProblemError:
        gradients = (None,) * len(inputs)
    idle_bytes = 0
    for index in large:
        try:
            idle_bytes += _LINE_BYTES * _idle_lines(problem, inputs, outputs, index, gradients[index], seed, until)
        except ProblemError:  # the reference does not bear other values there: all of it counts
            continue
    return 1.0 - idle_bytes / max(read_bytes, 1)


def _idle_lines(
    problem: Problem,
    inputs: Tensors,
    outputs: Tensors,
    index: int,
    gradient: torch.Tensor | None,
    seed: int,
    until: float,
) -> int:
    """Return the number of an input's lines that the outputs do not depend on."""
    tensor = inputs[index]
    count = tensor.nbytes // _LINE_BYTES
    noise = torch.randn(tensor.shape, generator=generator_for(seed, index, tensor), device=tensor.device)
    other = _lines(noise.mul_(_LARGE * size_of(tensor.float())).to(tensor.dtype), count)

    def stays(lines: torch.Tensor) -> bool:
        changed = tensor.clone()
        _lines(changed, count)[lines] = other[lines]
        moved = problem.reference((*inputs[:index], changed, *inputs[index + 1 :]), problem.state)
        return all(map(same_bytes, moved, outputs))

    return _count_idle(_suspects(tensor, gradient, count), stays, until)


def _suspects(tensor: torch.Tensor, gradient: torch.Tensor | None, count: int) -> torch.Tensor:
    """Return the lines that may be idle: those with a gradient of zero; all of them if there is no gradient."""
    if gradient is None:
        return torch.arange(count, device=tensor.device)
    elements = _LINE_BYTES // tensor.element_size()
    moves = gradient.contiguous().view(-1)[: count * elements].view(count, elements).float() != 0
    return moves.any(dim=1).logical_not().nonzero().flatten()


def _count_idle(lines: torch.Tensor, stays: Callable[[torch.Tensor], bool], until: float) -> int:
    """Return the number of these lines that are shown to be idle: all together, or in halves, quarters and so on."""
    pending, idle = deque([lines] if len(lines) else []), 0
    for _ in range(_TESTS):
        if not pending or time.monotonic() > until:
            break
        part = pending.popleft()
        if stays(part):
            idle += len(part)
        elif len(part) > 1:
            pending.extend(part.tensor_split(2))
    return idle


def _lines(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return tensor.view(-1).view(torch.uint8)[: count * _LINE_BYTES].view(count, _LINE_BYTES)


_FATAL = frozenset({ZEROS, STALE})
_FAMILIES = (GIVEN, GIVEN, CENTRED, PERTURBED, SPIKES)
"""Checks of an answer, in this order; made when needed."""
_TIMED_CALLS = 3


def examine(problem: Problem, tolerance: Tolerance) -> Intake:
    """Try trivial answers, and find the tensors that matter.

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
    took: list[int] = []
    for _ in range(_TIMED_CALLS):
        begun = time.perf_counter_ns()
        _finish(problem.reference(data.inputs, data.state))
        took.append(time.perf_counter_ns() - begun)
    return min(took) / 1000


def _finish(outputs: Tensors) -> None:
    for output in outputs:
        output.reshape(-1)[:1].cpu()
