"""How data for calls is made: families of it, with what the reference makes of them and how far off outputs may be.

Seeds come from `os.urandom`; a family and a seed say a data set. Everything is computed where the problem's tensors
lie.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from functools import partial

import torch

from evaluators.judge import distributions
from evaluators.judge.compare import Allowed, relative_distance, same_bytes
from evaluators.judge.distributions import ADVERSARIAL, FAR_ABOVE, FAR_BELOW, WITH_TIES
from evaluators.judge.low_bits import LOW_BITS, in_full
from evaluators.judge.model_state import is_statistic
from evaluators.judge.problem import Problem, ProblemError, Tensors, widen
from evaluators.judge.problem_code import NoMemoryError
from evaluators.tolerances import bounds_of
from messages.tasks import Tolerance

GIVEN, CENTRED, PERTURBED, SPIKES = "given", "centred", "perturbed parameters", "spikes"
CONSTANTS = "other constants"
"""Data as the task draws it, but for the inputs that are the same in every draw."""
NEARLY_EQUAL = "nearly equal to an earlier call"
NEARLY_EQUAL_PARAMETERS = "parameters nearly equal to an earlier call's"

_MOST_SAID = 160
_DRAWS_OF_CONSTANTS = 3
"""Other values that are tried for an input, until the reference is finite."""
_FEW_BITS = 2
"""Bytes of an element, at most, whose rounding says nothing of data far from zero: that is exact as it is drawn."""
_MOST_LOST = 2.0**-12
"""A family says nothing where rounding alone moves the result by more than this, and than four roundings."""
_MOST_LOST_LOOSELY = 2.0**-4
"""The same in profiles that let a lower precision through, with inputs rounded to that one."""


class DataSet:
    """Inputs and state of one call, with what the reference makes of them."""

    def __init__(self, family: str, seed: int, inputs: Tensors, state: Tensors) -> None:
        self.family = family
        self.seed = seed
        self.inputs = inputs
        self.state = state
        self.expected: Tensors = ()
        """In float64 where the reference has such a form; empty for timed data, whose reference runs when they do."""
        self.allowed: tuple[Allowed, ...] = ()
        self.complaint: Callable[[Tensors], str] | None = None
        """Says what is wrong with outputs, where the problem itself does; null: they are compared with the expected."""
        self.positions: Callable[[Sequence[Tensors]], dict[str, torch.Tensor]] | None = None
        """Says where the draws of calls lie, where outputs are drawn at random; null: they are not."""

    @property
    def size_bytes(self) -> int:
        """Return what keeping it costs, parameters aside."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.inputs, *self.expected))


def _untrained(problem: Problem) -> frozenset[int]:
    """Return which tensors of the state normalisations would take from data, and have as they are in a new model.

    Means of 0 and variances of 1 do nothing: in eval mode a candidate could leave the normalisation out.
    """
    named = enumerate(zip(problem.state_names, problem.state, strict=True))
    return frozenset(
        index
        for index, (name, tensor) in named
        if not problem.trains
        and is_statistic(name)
        and tensor.is_floating_point()
        and bool((tensor == tensor.flatten()[:1]).all())
    )


class DataMaker:
    """Makes data sets of a problem."""

    def __init__(self, problem: Problem, tolerance: Tolerance) -> None:
        self.problem = problem
        self._tolerance = tolerance
        self.reference_dtype = "float64"
        self._elements = max((math.prod(spec.shape) for spec in problem.output_specs), default=1)
        """Of the largest output."""
        self.skipped: dict[str, str] = {}
        """Families that this reference cannot be checked on, and why."""
        first = problem.inputs(new_seed())
        may_vary = [
            tensor.is_floating_point() and not kept for tensor, kept in zip(first, problem.as_drawn, strict=True)
        ]
        self._is_continuous = tuple(
            varies and not distributions.is_whole(tensor) for tensor, varies in zip(first, may_vary, strict=True)
        )
        self._is_binary = tuple(
            varies and not continuous and distributions.is_binary(tensor)
            for tensor, varies, continuous in zip(first, may_vary, self._is_continuous, strict=True)
        )
        self._has_few_bits = all(
            tensor.element_size() <= _FEW_BITS
            for tensor, continuous in zip(first, self._is_continuous, strict=True)
            if continuous
        )
        self._constants = tuple(index for index, tensor in enumerate(first) if self._is_constant(index, tensor))
        """Inputs that the task draws the same every time, and no other family changes."""
        self._other_constants: tuple[int, ...] = tuple(
            index for index in self._constants if not problem.as_drawn[index] and _has_other_constant(first[index])
        )
        """Those of them that the reference bears other values of, as far as that was tried."""
        self._parameters = frozenset(
            index for index in range(problem.parameter_count) if problem.state[index].is_floating_point()
        )
        self._untrained = _untrained(problem)

    def applies(self, family: str) -> bool:
        """Say whether a family differs from the given data here, and was not found to say nothing."""
        if family in self.skipped:
            return False
        if family == CONSTANTS:
            return bool(self._other_constants)
        if family in {PERTURBED, NEARLY_EQUAL_PARAMETERS}:
            return bool(self._parameters or (self._untrained and family == PERTURBED))
        if family in WITH_TIES and any("float" not in spec.dtype for spec in self.problem.output_specs):
            return False
        return family == GIVEN or any(self._is_continuous) or (family == "sparse" and any(self._is_binary))

    @property
    def never_varied(self) -> tuple[str, ...]:
        """Return the names of inputs that have the same value in every call, as far as that is known by now."""
        never = [index for index in self._constants if index not in self._other_constants]
        return tuple(self.problem.tensors[index].name for index in never)

    def bare(self, family: str, seed: int) -> DataSet:
        """Make the data alone."""
        inputs, state = self.problem.inputs(seed), self.problem.state
        if family == CONSTANTS:
            inputs = tuple(
                distributions.other_constant(tensor, generator_for(seed, index, tensor))
                if index in self._other_constants
                else tensor
                for index, tensor in enumerate(inputs)
            )
        elif family == PERTURBED:
            state = tuple(
                distributions.perturbed(tensor, generator_for(seed, index, tensor))
                if index in self._parameters | self._untrained
                else tensor
                for index, tensor in enumerate(state)
            )
        elif family != GIVEN:
            inputs = tuple(
                self._changed(family, index, tensor, generator_for(seed, index, tensor))
                for index, tensor in enumerate(inputs)
            )
        return self._judged(DataSet(family, seed, inputs, state))

    def _judged(self, data: DataSet) -> DataSet:
        if self.problem.has_check:
            data.complaint = partial(self.problem.complaint, data.inputs)
        if self.problem.draws:
            data.positions = partial(self.problem.positions, data.inputs)
        return data

    def given(self) -> DataSet:
        """Make a data set of what the task draws."""
        data, native = self._expecting(GIVEN)
        data.allowed = tuple(
            Allowed(expected, own, self._tolerance) for expected, own in zip(data.expected, native, strict=True)
        )
        return data

    def make(self, family: str) -> DataSet | None:
        """Make a data set; None (and a word in `skipped`) if the reference says nothing there.

        Raises:
            ProblemError: the reference fails on what the task draws.
        """
        if family == GIVEN:
            return self.given()
        if family == CONSTANTS:
            return self._with_other_constants()
        return self._varied_or_none(family)

    def _varied_or_none(self, family: str) -> DataSet | None:
        try:
            return self._varied(family)
        except NoMemoryError:
            raise
        except ProblemError as error:  # a matrix that can no longer be factorised, say
            self.skipped[family] = f"the reference fails there: {str(error)[:_MOST_SAID]}"
            return None

    def _with_other_constants(self) -> DataSet | None:
        """Make data with other values of inputs that never vary; of all of them that the reference bears together."""
        found, candidates, self._other_constants = None, self._other_constants, ()
        for index in candidates:
            borne, self._other_constants = self._other_constants, (*self._other_constants, index)
            made = (self._varied_or_none(CONSTANTS) for _ in range(_DRAWS_OF_CONSTANTS))
            data = next((data for data in made if data is not None), None)
            self._other_constants = borne if data is None else self._other_constants
            found = data or found
        self.skipped.pop(CONSTANTS, None)
        return found

    def _varied(self, family: str) -> DataSet | None:
        """Make a data set that the task does not draw.

        Raises:
            ProblemError: the reference fails on it.
        """
        data, native = self._expecting(family)
        if not (_is_finite(data.expected) and _is_finite(native)):
            self.skipped[family] = "the reference is not finite there"
            return None
        if data.complaint is not None and (said := data.complaint(native)):
            self.skipped[family] = f"the reference itself fails the problem's check there: {said}"
            return None
        is_rounded = family in ADVERSARIAL and not (self._has_few_bits and family in {FAR_ABOVE, FAR_BELOW})
        is_conditioned = not is_rounded and not any(map(self._is_loose, (out.dtype for out in native)))
        lost = (0.0,) * len(native) if is_conditioned else self._lost_by_rounding(data, native)
        if any(loss > self._most_lost(output.dtype) for loss, output in zip(lost, native, strict=True)):
            self.skipped[family] = f"rounding alone moves the result by {min(max(lost), 1.0):.1%} there, or more"
            return None
        data.allowed = tuple(
            Allowed(expected, own, self._tolerance, input_error=loss)
            for expected, own, loss in zip(data.expected, native, lost, strict=True)
        )
        return data

    def _expecting(self, family: str) -> tuple[DataSet, Tensors]:
        """Return data with its expected values, and the reference in the task's own dtype."""
        data = self.bare(family, new_seed())
        native = self.problem.reference(data.inputs, data.state)
        # Where the problem itself says what is right, no output is compared with the reference's.
        data.expected = native if self.problem.has_check else self._expected(data.inputs, data.state, native)
        return data, native

    def nearly(self, base: DataSet, family: str = NEARLY_EQUAL) -> DataSet:
        """Make a copy that differs in one or two elements of one tensor, as a cache by samples would not notice.

        What is allowed there is what is allowed for `base`: the new values are as the others.

        Args:
            base: what is copied.
            family: `NEARLY_EQUAL`: of an input; `NEARLY_EQUAL_PARAMETERS`: of a parameter.
        """
        seed, count = new_seed(), len(base.inputs)
        tensors = (*base.inputs, *base.state)
        if family == NEARLY_EQUAL:
            choices = [index for index, continuous in enumerate(self._is_continuous) if continuous]
        else:
            choices = [count + index for index in sorted(self._parameters)]
        changed = choices[seed % len(choices)]
        made = [
            distributions.nearly_equal(tensor, generator_for(seed, index, tensor)) if index == changed else tensor
            for index, tensor in enumerate(tensors)
        ]
        # The same object where it is the same: for another state a module's process is started anew.
        state = base.state if family == NEARLY_EQUAL else tuple(made[count:])
        data = self._judged(DataSet(family, seed, tuple(made[:count]), state))
        data.allowed = base.allowed
        return data

    @property
    def can_vary(self) -> bool:
        """Whether any input may be changed at all."""
        return any(self._is_continuous)

    def _is_constant(self, index: int, tensor: torch.Tensor) -> bool:
        """Say whether an input that no family varies is the same in another draw."""
        if self._is_continuous[index] or not tensor.numel():
            return False
        return same_bytes(tensor, self.problem.inputs(new_seed())[index])

    def _changed(self, family: str, index: int, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if self._is_continuous[index]:
            change = distributions.centred if family == CENTRED else ADVERSARIAL[family]
            return change(tensor, generator)
        if self._is_binary[index] and family == "sparse":
            return distributions.zeros_and_ones(tensor, generator)
        return tensor

    def _expected(self, inputs: Tensors, state: Tensors, native: Tensors) -> Tensors:
        if self.reference_dtype == "float64":
            try:
                return self.problem.reference(inputs, state, wide=True)
            except NoMemoryError:
                raise
            except ProblemError:
                self.reference_dtype = str(native[0].dtype).removeprefix("torch.")
        return tuple(widen(tensor) for tensor in native)

    def _step(self, dtype: torch.dtype) -> float:
        """Return the machine epsilon of the precision that inputs may be rounded to: what the task itself allows."""
        if dtype in LOW_BITS:
            return torch.finfo(dtype).eps
        bounds = bounds_of(self._tolerance, str(dtype).removeprefix("torch.")).for_elements(self._elements)
        return max(torch.finfo(dtype).eps, 0.0 if bounds.atol is None else bounds.rtol)

    def _is_loose(self, dtype: torch.dtype) -> bool:
        """Say whether the task's tolerance lets a lower precision than this one through."""
        return dtype.is_floating_point and self._step(dtype) > torch.finfo(dtype).eps

    def _most_lost(self, dtype: torch.dtype) -> float:
        return _MOST_LOST_LOOSELY if self._is_loose(dtype) else most_lost(dtype)

    def _lost_by_rounding(self, data: DataSet, native: Tensors) -> tuple[float, ...]:
        """Return per output how far rounding alone moves it: of the computation, and of the inputs.

        The reference's own error is not enough: on data that is exact in it by luck (constants) it is zero.
        """
        own = [
            relative_distance(expected, output) if output.is_floating_point() else 0.0
            for expected, output in zip(data.expected, native, strict=True)
        ]
        if self.reference_dtype != "float64":
            return tuple(own)
        swayed = tuple(
            distributions.rounded(
                tensor.double(), self._step(tensor.dtype), generator_for(data.seed + 1, index, tensor)
            )
            if self._is_continuous[index]
            else tensor
            for index, tensor in enumerate(data.inputs)
        )
        moved = self.problem.reference(swayed, data.state, wide=True)
        return tuple(
            max(loss, relative_distance(expected, output)) if output.is_floating_point() else 0.0
            for loss, expected, output in zip(own, data.expected, moved, strict=True)
        )


def new_seed() -> int:
    """Return a seed that nobody could foresee."""
    return secrets.randbits(63)


def generator_for(seed: int, index: int, tensor: torch.Tensor) -> torch.Generator:
    """Return a generator of a data set's own for its tensor number `index`, on that tensor's device."""
    return torch.Generator(device=tensor.device).manual_seed((seed + 7919 * index + 1) % (1 << 63))


def _has_other_constant(tensor: torch.Tensor) -> bool:
    """Say whether other values of a tensor are known to be valid: of masks and of whole numbers."""
    return tensor.dtype == torch.bool or (tensor.is_floating_point() and tensor.dtype not in LOW_BITS)


def most_lost(dtype: torch.dtype) -> float:
    """Return by how much rounding may move an output, relative to its scale, for a check of it to say something."""
    return max(_MOST_LOST, 4 * torch.finfo(dtype).eps) if dtype.is_floating_point else _MOST_LOST


def _is_finite(tensors: Tensors) -> bool:
    return all(bool(in_full(tensor).isfinite().all()) for tensor in tensors)
