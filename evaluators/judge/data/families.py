"""Input distributions: data for checks and for timed calls, with the reference's outputs.

Seeds come from `os.urandom`; a distribution and a seed identify a data set. A candidate sees each data set of its
checks once (the first is sent again at the end). The sets are kept for the next candidates and gradually renewed. Timed
calls get data that this candidate has never seen.
"""

from __future__ import annotations

import itertools
import math
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from evaluators.judge.check.compare import Allowed, relative_distance, same_bytes
from evaluators.judge.check.low_bits import LOW_BITS, in_full
from evaluators.judge.check.tolerances import bounds_of
from evaluators.judge.data import distributions
from evaluators.judge.data.distributions import ADVERSARIAL, FAR_ABOVE, FAR_BELOW, WITH_TIES
from evaluators.judge.data.memory import Room, release_scratch, room_for, timed_bytes
from evaluators.judge.reference.problem import NoMemoryError, Problem, ProblemError, Tensors, is_statistic, widen
from messages.tasks import Tolerance

GIVEN, CENTRED, PERTURBED, SPIKES = "given", "centred", "perturbed parameters", "spikes"
CONSTANTS = "other constants"
"""Data as the task draws it, except for the inputs that are the same in every draw."""
NEARLY_EQUAL = "nearly equal to an earlier call"
NEARLY_EQUAL_PARAMETERS = "parameters nearly equal to an earlier call's"

_MOST_SAID = 160
_DRAWS_OF_CONSTANTS = 3
"""Number of other values tried for an input, until the reference is finite."""
_FEW_BITS = 2
"""Most bytes of an element for which rounding makes data far from zero useless; such inputs are exact as drawn."""
_MOST_LOST = 2.0**-12
"""A family is useless if rounding alone moves the result by more than this, and than four roundings."""
_MOST_LOST_LOOSELY = 2.0**-4
"""The same in profiles that allow a lower precision, with inputs rounded to that."""


class DataSet:
    """Inputs and state of one call, with the reference's results."""

    def __init__(self, family: str, seed: int, inputs: Tensors, state: Tensors) -> None:
        self.family = family
        self.seed = seed
        self.inputs = inputs
        self.state = state
        self.expected: Tensors = ()
        """Expected outputs, in float64 if the reference has that form; empty for timed data, on which the reference
        runs then."""
        self.allowed: tuple[Allowed, ...] = ()
        self.complaint: Callable[[Tensors], str] | None = None
        """Returns the error in some outputs, if the problem checks them itself; None: they are compared with the
        expected ones."""
        self.positions: Callable[[Sequence[Tensors]], dict[str, torch.Tensor]] | None = None
        """Returns the positions of draws, if outputs are drawn at random; None: they are not."""

    @property
    def size_bytes(self) -> int:
        """Return the memory for keeping it, without parameters."""
        return sum(tensor.nbytes for tensor in (*self.inputs, *self.expected))


def _untrained(problem: Problem) -> frozenset[int]:
    """Return normalisation statistics that training would learn and that still have their initial values.

    Means of 0 and variances of 1 have no effect: in eval mode a candidate could leave the normalisation out.
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
        """Number of elements of the largest output."""
        self.skipped: dict[str, str] = {}
        """Families that this reference cannot be checked on, and why."""
        first = problem.inputs(new_seed())
        may_vary = [
            tensor.is_floating_point() and not kept for tensor, kept in zip(first, problem.as_drawn, strict=True)
        ]
        pairs = list(zip(first, may_vary, strict=True))
        self._is_continuous = tuple(varies and not distributions.is_whole(tensor) for tensor, varies in pairs)
        self._is_binary = tuple(varies and distributions.is_binary(tensor) for tensor, varies in pairs)
        self.can_vary = any(self._is_continuous)
        """True if any input may be changed."""
        continuous = itertools.compress(first, self._is_continuous)
        self._has_few_bits = all(tensor.element_size() <= _FEW_BITS for tensor in continuous)
        self._constants = tuple(index for index, tensor in enumerate(first) if self._is_constant(index, tensor))
        """Inputs that the task draws the same every time, and that no other family changes."""
        self._other_constants: tuple[int, ...] = tuple(
            index for index in self._constants if not problem.as_drawn[index] and _has_other_constant(first[index])
        )
        """Those of them for which the reference accepts other values, as far as was tried."""
        self._parameters = frozenset(
            index for index in range(problem.parameter_count) if problem.state[index].is_floating_point()
        )
        self._untrained = _untrained(problem)

    def applies(self, family: str) -> bool:
        """Return True if a family differs from the given data here, and was not found to be useless."""
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
        """Return the names of inputs known so far to have the same value in every call."""
        never = [index for index in self._constants if index not in self._other_constants]
        return tuple(self.problem.tensors[index].name for index in never)

    def bare(self, family: str, seed: int) -> DataSet:
        """Make the data without the reference's results."""
        inputs, state = self.problem.inputs(seed), self.problem.state
        if family == PERTURBED:
            changed = self._parameters | self._untrained
            state = tuple(
                distributions.perturbed(tensor, generator_for(seed, index, tensor)) if index in changed else tensor
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
        """Make a data set of the task's own distribution."""
        data, native = self._expecting(GIVEN)
        pairs = zip(data.expected, native, strict=True)
        data.allowed = tuple(Allowed(expected, own, self._tolerance) for expected, own in pairs)
        return data

    def make(self, family: str) -> DataSet | None:
        """Make a data set; None (with an entry in `skipped`) if the reference is not usable on it."""
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
        """Make data with other values of inputs that never vary, of all that the reference accepts together."""
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
        data = self.bare(family, new_seed())
        native = self.problem.reference(data.inputs, data.state)
        # If the problem checks outputs itself, no output is compared with the reference's.
        data.expected = native if self.problem.has_check else self._expected(data.inputs, data.state, native)
        return data, native

    def nearly(self, base: DataSet, family: str = NEARLY_EQUAL) -> DataSet:
        """Copy a data set, except for one or two elements of an input or parameter, which caches by samples miss."""
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
        # The same object if it is unchanged: another state takes another process of a module.
        state = base.state if family == NEARLY_EQUAL else tuple(made[count:])
        data = self._judged(DataSet(family, seed, tuple(made[:count]), state))
        data.allowed = base.allowed
        return data

    def _is_constant(self, index: int, tensor: torch.Tensor) -> bool:
        if self._is_continuous[index] or not tensor.numel():
            return False
        return same_bytes(tensor, self.problem.inputs(new_seed())[index])

    def _changed(self, family: str, index: int, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if family == CONSTANTS:
            return distributions.other_constant(tensor, generator) if index in self._other_constants else tensor
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
        """Return the machine epsilon of the precision to which inputs may be rounded, as the task allows."""
        if dtype in LOW_BITS:
            return torch.finfo(dtype).eps
        bounds = bounds_of(self._tolerance, str(dtype).removeprefix("torch.")).for_elements(self._elements)
        return max(torch.finfo(dtype).eps, 0.0 if bounds.atol is None else bounds.rtol)

    def _is_loose(self, dtype: torch.dtype) -> bool:
        return dtype.is_floating_point and self._step(dtype) > torch.finfo(dtype).eps

    def _most_lost(self, dtype: torch.dtype) -> float:
        return _MOST_LOST_LOOSELY if self._is_loose(dtype) else most_lost(dtype)

    def _lost_by_rounding(self, data: DataSet, native: Tensors) -> tuple[float, ...]:
        """Return for each output how far rounding alone moves it: of the computation, and of the inputs.

        The reference's own error does not suffice: on data that is exact by chance (constants) it is zero.
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
    """Return an unpredictable seed."""
    return secrets.randbits(63)


def generator_for(seed: int, index: int, tensor: torch.Tensor) -> torch.Generator:
    """Return a generator for a data set's tensor number `index`, on that tensor's device."""
    return torch.Generator(device=tensor.device).manual_seed((seed + 7919 * index + 1) % (1 << 63))


def _has_other_constant(tensor: torch.Tensor) -> bool:
    """Return True if other values of a tensor are known to be valid: for masks and whole numbers."""
    return tensor.dtype == torch.bool or (tensor.is_floating_point() and tensor.dtype not in LOW_BITS)


def most_lost(dtype: torch.dtype) -> float:
    """Return the largest movement of an output by rounding, relative to its scale, for a useful check."""
    return max(_MOST_LOST, 4 * torch.finfo(dtype).eps) if dtype.is_floating_point else _MOST_LOST


def _is_finite(tensors: Tensors) -> bool:
    return all(bool(in_full(tensor).isfinite().all()) for tensor in tensors)


CHECKS = (GIVEN, CENTRED, SPIKES, GIVEN, FAR_BELOW, CONSTANTS, PERTURBED)
"""Families for every candidate. Most wrong candidates fail on the first. Drawn families come before the last, which has
other parameters: modules need another process for those."""
FEW_CHECKS = (GIVEN, CENTRED, SPIKES, FAR_BELOW, CONSTANTS, PERTURBED)
"""The same for candidates with long calls."""
DRAWN, FEW_DRAWN = 3, 1
"""Least number of further families, drawn for each candidate."""
EXTRA_S = 0.5
"""Seconds for further families: all of them if tensors are small."""
_OTHERS = tuple(family for family in ADVERSARIAL if family not in {SPIKES, FAR_BELOW})

_RENEW_EVERY = 4
_MAKING_S = 2.0
"""Seconds of making data after which no further family is drawn for a candidate."""


class CheckData:
    """Data sets with expected values: first the same families for all candidates, then drawn ones."""

    def __init__(
        self,
        problem: Problem,
        tolerance: Tolerance,
        *,
        families: Sequence[str] = CHECKS,
        drawn: int = DRAWN,
        extra_s: float = EXTRA_S,
        room: Room | None = None,
    ) -> None:
        """Prepare: `families` for every candidate, at least `drawn` others, and more of them for `extra_s`."""
        self._maker = DataMaker(problem, tolerance)
        self._families = families
        self.skipped = self._maker.skipped
        """Families that this reference cannot be checked on, and why."""
        self._drawn, self._extra_s = drawn, extra_s
        self._spent_s = 0.0
        """Seconds spent on data of drawn families for this candidate."""
        self._kept: dict[str, DataSet] = {}
        self._room = room or room_for([problem])
        self._candidates = 0
        self._chance = random.SystemRandom()

    @property
    def reference_dtype(self) -> str:
        """Return the precision of the expected values; the reference's, if the problem checks outputs itself."""
        problem = self._maker.problem
        return problem.output_specs[0].dtype if problem.has_check else self._maker.reference_dtype

    @property
    def never_varied(self) -> tuple[str, ...]:
        """Return the names of inputs that had the same value in every call."""
        return self._maker.never_varied

    def sets(self) -> Iterator[DataSet]:
        """Yield the data sets for one candidate, each once."""
        yield from self.on_given_state()
        yield from self.drawn()
        yield from self.on_other_state()

    @property
    def has_other_state(self) -> bool:
        """True if there may be data with other parameters."""
        return self._maker.applies(self._families[-1])

    def forget(self) -> bool:
        """Drop the kept data. Returns True if there was any."""
        was_there = bool(self._kept)
        for data in self._kept.values():
            self._room.give_back(data.size_bytes)
        self._kept.clear()
        return was_there

    def in_brief(self) -> Iterator[DataSet]:
        """Yield a data set of the task's own distribution."""
        self._begin()
        first = self._families[0]
        yield from self._found(first, f"{first} 0")

    def drawn_in_brief(self) -> Iterator[DataSet]:
        """Yield a data set of one other family with the task's own parameters, chosen at random."""
        first, *others = self._families[:-1]
        families = [family for family in dict.fromkeys((*others, *_OTHERS)) if family != first]
        self._chance.shuffle(families)
        # Existing sets come first, mostly: making one in float64 takes longer than a good candidate.
        if self._chance.randrange(_RENEW_EVERY):
            families.sort(key=lambda family: family not in self._kept)
        for family in families:
            for data in self._found(family, family):
                yield data
                return

    def on_given_state(self) -> Iterator[DataSet]:
        """Yield the data sets for every candidate with the task's own parameters: all but the last."""
        self._begin()
        for index, family in enumerate(self._families[:-1]):
            yield from self._found(family, f"{family} {index}")

    def _begin(self) -> None:
        """Begin with another candidate, sometimes without the oldest kept set."""
        self._candidates += 1
        if self._candidates % _RENEW_EVERY == 0 and self._kept:
            # The oldest, since dictionaries are ordered by insertion.
            self._room.give_back(self._kept.pop(next(iter(self._kept))).size_bytes)

    def on_other_state(self) -> Iterator[DataSet]:
        """Yield the last data set, with other parameters; none if there are no parameters."""
        last = self._families[-1]
        yield from self._found(last, f"{last} {len(self._families) - 1}")

    def drawn(self) -> Iterator[DataSet]:
        """Yield data sets of families drawn for this candidate."""
        yielded, begun, self._spent_s = 0, time.perf_counter(), 0.0
        for family in self._chance.sample(_OTHERS, len(_OTHERS)):
            is_enough = yielded >= self._drawn and time.perf_counter() - begun >= self._extra_s
            if is_enough or self._spent_s > _MAKING_S:
                return
            for data in self._found(family, family):
                yielded += 1
                yield data

    def _found(self, family: str, key: str) -> Iterator[DataSet]:
        """Yield the data set, or none if the family does not apply."""
        if key in self._kept:
            yield self._kept[key]
            return
        if not self._maker.applies(family):
            return
        begun = time.perf_counter()
        data = self._maker.make(family)
        release_scratch(self._maker.problem.device)
        self._spent_s += time.perf_counter() - begun
        if data is None:
            return
        if self._room.take(data.size_bytes):
            self._kept[key] = data
        yield data


_ADVERSARIAL_ONE_IN = 2
"""So that most of the kinds, of which there are five at most, are among the eight calls that most often are timed at
least. Where four have to do, two kinds are."""
_NEARLY = frozenset({NEARLY_EQUAL, NEARLY_EQUAL_PARAMETERS})
_RENEWING_S = 0.5
"""For how long data that a candidate saw is made anew before the next one, that of all workloads together: large
tensors take longer."""


class TimedData:
    """Inputs for timed calls, made before the lease as far as memory allows.

    Half of them are adversarial: spikes in data that looks like the rest, the data of an earlier call with one or two
    elements changed (parameters, too), other signs, other parameters. A candidate knows when it is timed, so without
    them the checks' findings would be valid for checks only.
    """

    def __init__(self, problem: Problem, tolerance: Tolerance, *, same_state: bool = False, share: int = 1) -> None:
        """Prepare; `same_state`: never change parameters (of modules); `share`: workloads that share the memory."""
        self._maker = maker = DataMaker(problem, tolerance)
        self._ready: list[DataSet] = []
        self._most_bytes = timed_bytes(problem) // share
        self._renewing_s = _RENEWING_S / share
        self._served = 0
        self._last: DataSet | None = None
        self._chance = random.SystemRandom()
        self._plan: list[bool] = []
        """Plan of the next data sets; True for adversarial ones."""
        state_bytes = sum(tensor.nbytes for tensor in problem.state)
        keeps_state = same_state or state_bytes > self._most_bytes
        kinds = [SPIKES, NEARLY_EQUAL, CENTRED, *(() if keeps_state else (PERTURBED, NEARLY_EQUAL_PARAMETERS))]
        self._kinds = deque(self._chance.sample(kinds, len(kinds)))
        """Order of the next kinds, where they apply."""
        self._allowed = maker.given().allowed

    def prepare(self, count: int) -> None:
        """Make up to `count` data sets. Data that the last candidate saw is renewed, unless the reference computed it.

        Does nothing if no candidate saw any since.
        """
        if self._ready and not self._served:
            return
        begun = time.monotonic()
        for place in self._chance.sample(range(self._served), self._served):
            if time.monotonic() - begun > self._renewing_s:
                break
            if place < len(self._ready) and self._ready[place].family in {GIVEN, *_NEARLY}:
                self._ready[place] = self._of_family(self._ready[place].family)
        if self._ready:
            self._ready.pop(0)
        while len(self._ready) < count and self._fits():
            self._ready.append(self._make(may_compute=True))
        self._served = 0

    def next(self) -> DataSet:
        """Return a data set that this candidate has not seen."""
        if self._served < len(self._ready):
            data = self._ready[self._served]
        else:
            data = self._make(may_compute=False)
            if self._fits():
                self._ready.append(data)
        self._served += 1
        return data

    def replace(self, count: int, *, is_hurried: bool = False) -> None:
        """Replace the data sets that this candidate saw by `count` new ones, of all kinds."""
        until = time.monotonic() + self._renewing_s if is_hurried else math.inf
        del self._ready[: self._served]
        self._served = 0
        while len(self._ready) < count and self._fits():
            self._ready.append(self._make(may_compute=time.monotonic() < until))

    def apart(self) -> DataSet:
        """Return a data set that is not among the next ones."""
        return self._of_family(GIVEN)

    def _fits(self) -> bool:
        if not self._ready:
            return True
        return self._ready[0].size_bytes * (len(self._ready) + 1) <= self._most_bytes

    def _make(self, *, may_compute: bool) -> DataSet:
        if not self._plan:
            self._plan = [True] + [False] * (_ADVERSARIAL_ONE_IN - 1)
            self._chance.shuffle(self._plan)
        data = self._adversarial(may_compute=may_compute) if self._plan.pop() else None
        self._last = self._of_family(GIVEN) if data is None else data
        return self._last

    def _of_family(self, family: str) -> DataSet:
        """Make data that needs no reference: as the task draws it, or nearly equal to the last or an older set."""
        if family in _NEARLY and self._last is not None:
            base = self._chance.choice([self._last, self._chance.choice(self._ready or [self._last])])
            return self._maker.nearly(base, family)
        data = self._maker.bare(GIVEN, new_seed())
        data.allowed = self._allowed
        return data

    def _adversarial(self, *, may_compute: bool) -> DataSet | None:
        """Make a data set of the next kind; None if the problem has none."""
        for _ in range(len(self._kinds)):
            self._kinds.rotate(-1)
            kind = self._kinds[-1]
            if kind in _NEARLY:
                can_be = self._maker.can_vary if kind == NEARLY_EQUAL else self._maker.applies(kind)
                if can_be and self._last is not None:
                    return self._of_family(kind)
            elif may_compute and self._maker.applies(kind) and (data := self._maker.make(kind)) is not None:
                data.expected = ()
                return data
        return None
