"""The data that candidates are checked and timed on.

Seeds come from `os.urandom`. A candidate sees each data set at most once: check data is kept for the next candidates
(every one is a process of its own) and renewed bit by bit; timed calls get data that this candidate never saw.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence

import torch

from evaluators.judge.compare import Allowed
from evaluators.judge.problem import Problem, ProblemError, Tensors, widen
from messages.tasks import Tolerance

GIVEN, CENTRED, PERTURBED = "given", "centred", "perturbed parameters"

CHECKS = (GIVEN, CENTRED, PERTURBED, GIVEN, GIVEN)
"""In this order: most wrong candidates fail on the first."""
FEW_CHECKS = (GIVEN, CENTRED, PERTURBED)
_KEPT_BYTES = 512 << 20
_RENEW_EVERY = 4
_PERTURBATION = 0.1


class DataSet:
    """Inputs and state of one call, with what the reference makes of them."""

    def __init__(self, family: str, seed: int, inputs: Tensors, state: Tensors) -> None:
        self.family = family
        self.seed = seed
        self.inputs = inputs
        self.state = state
        self.expected: Tensors = ()
        """In float64 where the reference has such a form."""
        self.allowed: tuple[Allowed, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return what keeping it costs, parameters aside."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.inputs, *self.expected))

    @property
    def finite(self) -> bool:
        """Whether the expected values are all finite."""
        return all(bool(tensor.isfinite().all()) for tensor in self.expected)


class CheckData:
    """Data sets with expected values."""

    def __init__(self, problem: Problem, tolerance: Tolerance, *, families: Sequence[str] = CHECKS) -> None:
        self._problem = problem
        self._tolerance = tolerance
        self._families = families
        self._kept: list[DataSet | None] = [None] * len(families)
        self._skipped: set[str] = set()
        self._candidates = 0
        self.reference_dtype = "float64"

    def sets(self) -> Iterator[DataSet]:
        """Yield the data sets for one candidate, each once."""
        self._candidates += 1
        if self._candidates % _RENEW_EVERY == 0:
            self._kept[(self._candidates // _RENEW_EVERY) % len(self._families)] = None
        for index, family in enumerate(self._families):
            if family in self._skipped or not self._applies(family):
                continue
            data = self._kept[index] or self._make(family)
            if data is None:
                self._skipped.add(family)
                continue
            kept_bytes = sum(kept.size_bytes for kept in self._kept if kept is not None and kept is not data)
            self._kept[index] = data if kept_bytes + data.size_bytes <= _KEPT_BYTES else None
            yield data

    @property
    def skipped(self) -> tuple[str, ...]:
        """Families that this reference cannot be checked on."""
        return tuple(sorted(self._skipped))

    def _applies(self, family: str) -> bool:
        if family == PERTURBED:
            return any(tensor.is_floating_point() for tensor in self._problem.state[: self._problem.parameter_count])
        if family == CENTRED:
            return any(spec.role == "input" and "float" in spec.dtype for spec in self._problem.tensors)
        return True

    def _make(self, family: str) -> DataSet | None:
        """Make a data set; None if the reference is not finite there."""
        seed = new_seed()
        inputs, state = self._problem.inputs(seed), self._problem.state
        if family == CENTRED:
            inputs = tuple(_centred(tensor) for tensor in inputs)
        elif family == PERTURBED:
            state = tuple(
                _perturbed(tensor) if index < self._problem.parameter_count else tensor
                for index, tensor in enumerate(state)
            )
        data = DataSet(family, seed, inputs, state)
        native = self._problem.reference(inputs, state)
        data.expected = self._expected(inputs, state, native)
        if family != GIVEN and not data.finite:
            return None
        data.allowed = tuple(
            Allowed(expected, own, self._tolerance) for expected, own in zip(data.expected, native, strict=True)
        )
        return data

    def _expected(self, inputs: Tensors, state: Tensors, native: Tensors) -> Tensors:
        if self.reference_dtype == "float64":
            try:
                return self._problem.reference(inputs, state, wide=True)
            except ProblemError:
                self.reference_dtype = str(native[0].dtype).removeprefix("torch.")
        return tuple(widen(tensor) for tensor in native)


class TimedData:
    """Inputs for timed calls, made before the lease as far as memory allows."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._ready: list[DataSet] = []
        self._served = 0

    def prepare(self, count: int) -> None:
        """Make up to `count` data sets, and renew the oldest."""
        if self._ready:
            self._ready.pop(0)
        while len(self._ready) < count and self._fits():
            self._ready.append(self._make())
        self._served = 0

    def next(self) -> DataSet:
        """Return one that this candidate has not seen."""
        if self._served < len(self._ready):
            data = self._ready[self._served]
        else:
            data = self._make()
            if self._fits():
                self._ready.append(data)
        self._served += 1
        return data

    def _fits(self) -> bool:
        if not self._ready:
            return True
        return self._ready[0].size_bytes * (len(self._ready) + 1) <= _KEPT_BYTES

    def _make(self) -> DataSet:
        seed = new_seed()
        return DataSet(GIVEN, seed, self._problem.inputs(seed), self._problem.state)


def new_seed() -> int:
    """Return a seed that nobody could foresee."""
    return secrets.randbits(63)


def _centred(tensor: torch.Tensor) -> torch.Tensor:
    return tensor - tensor.mean() if tensor.is_floating_point() else tensor


def _perturbed(tensor: torch.Tensor) -> torch.Tensor:
    """Move each element by about a tenth of the tensor's root mean square (of 1 where that is 0)."""
    if not tensor.is_floating_point():
        return tensor
    size = tensor.pow(2).mean().sqrt()
    return tensor + _PERTURBATION * torch.where(size > 0, size, 1.0) * torch.randn_like(tensor)
