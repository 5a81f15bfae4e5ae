"""Which tensors a task's output depends on: each is changed alone, and the reference run again.

Integers take values only as the task itself draws them; what it draws the same every time is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import torch

from evaluators.intake.answers import wrong_share
from evaluators.judge import distributions
from evaluators.judge.compare import same_bytes
from evaluators.judge.families import DataMaker, DataSet, generator_for
from evaluators.judge.problem import ProblemError, Tensors
from messages.intake import Influence

_TIME_S = 5.0
"""No further tensor is looked at when those before have taken this long."""


class _Change(msgspec.Struct, frozen=True):
    """One tensor with other values."""

    influence: Influence
    """As far as it is known before the reference runs."""
    inputs: Tensors
    state: Tensors


def find_influences(maker: DataMaker, data: DataSet, other: DataSet) -> tuple[Influence, ...]:
    """Say of every input, parameter and buffer whether the outputs depend on it.

    Args:
        maker: of the problem's data.
        data: with expected values.
        other: another draw.
    """
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
    """Return other values for an input; None if there are none that are known to be valid."""
    tensor = data.inputs[index]
    if not same_bytes(drawn, tensor):
        return drawn
    if not tensor.is_floating_point():
        return None
    if distributions.is_binary(tensor):
        return distributions.zeros_and_ones(tensor, generator_for(data.seed, index, tensor))
    return _redrawn(tensor, data.seed + index)


def _redrawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Move each element by about as much as the tensor is large."""
    noise = torch.randn(
        tensor.shape, generator=generator_for(seed, 0, tensor), device=tensor.device, dtype=tensor.dtype
    )
    return tensor + noise * distributions.size_of(tensor).to(tensor.dtype)
