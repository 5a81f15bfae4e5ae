"""How much of a task's inputs its outputs depend on, for data as the task draws it.

Of a table, a call may need some rows; of a cache with pages, those of sequences that are as long. A floor or a roofline
that counts whole tensors would refuse the best kernels there. So lines of an input that are not needed are looked for:
those whose gradient is zero are given other values, all at once, and if the outputs stay the same bit by bit they are
not needed. If the outputs move, the lines are halved and tried again, a bounded number of times. What is not shown to
be idle counts as needed. Integers and masks always count, and so do parameters.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean

import torch

from evaluators.judge.arena import total_bytes
from evaluators.judge.compare import same_bytes
from evaluators.judge.distributions import size_of
from evaluators.judge.families import generator_for, new_seed
from evaluators.judge.problem import Problem, ProblemError, Tensors
from messages.tasks import TensorSpec

_LINE_BYTES = 128
"""A line of a GPU's caches; what is read of a line costs the whole line."""
_LEAST_BYTES = 1 << 20
"""Inputs below this are counted whole: they make no difference to a floor."""
_DRAWS = 5
_TESTS = 24
"""Calls of the reference for one input of one draw, at most."""
_TIME_S = 5.0
_LARGE = 8.0
"""Times its root mean square: what is put into lines that may be idle."""


class Reads:
    """Shares of the bytes of all inputs and parameters that the outputs of some draws depend on."""

    def __init__(self, problem: Problem) -> None:
        """Look at some draws, as many as fit in the time.

        Raises:
            ProblemError: the reference fails on its own inputs.
        """
        self.shares: list[float] = []
        """One for each draw; 1 where nothing is known to be idle."""
        until = time.monotonic() + _TIME_S
        while len(self.shares) < _DRAWS and (not self.shares or time.monotonic() < until):
            self.shares.append(_share(problem, until))

    @property
    def least(self) -> float:
        """Return the smallest share: what a floor may count on."""
        return min(self.shares)

    @property
    def mean(self) -> float:
        """Return the mean share: what a roofline says."""
        return fmean(self.shares)


def bytes_read(tensors: Sequence[TensorSpec], share: float) -> int:
    """Return the bytes of a call's tensors, of inputs and parameters only a share."""
    read = total_bytes([tensor for tensor in tensors if tensor.role != "output"])
    return total_bytes(tensors) - round((1.0 - share) * read)


def _share(problem: Problem, until: float) -> float:
    """Return the share for one draw."""
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
    """Return how many lines of an input the outputs do not depend on."""
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
    """Return the lines that may be idle: those with a gradient of zero; all of them where there is no gradient."""
    if gradient is None:
        return torch.arange(count, device=tensor.device)
    elements = _LINE_BYTES // tensor.element_size()
    moves = gradient.contiguous().view(-1)[: count * elements].view(count, elements).float() != 0
    return moves.any(dim=1).logical_not().nonzero().flatten()


def _count_idle(lines: torch.Tensor, stays: Callable[[torch.Tensor], bool], until: float) -> int:
    """Return how many of these lines are shown to be idle: all together, or in halves, quarters and so on."""
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
    """Return a view of a dense tensor's bytes, a row for each whole line."""
    return tensor.view(-1).view(torch.uint8)[: count * _LINE_BYTES].view(count, _LINE_BYTES)
