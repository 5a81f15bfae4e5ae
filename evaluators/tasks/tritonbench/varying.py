"""Varies what a test writes out: values that are the same under every seed would let a constant answer pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evaluators.runners.structure import flatten, rebuild
from evaluators.tasks.tritonbench.recording import Call, same_bytes

_SHRINKAGE = 0.1


def varied(calls: list[Call], literals: frozenset[int]) -> list[Call]:
    """Return calls in which each value of some tensors is smaller by up to a tenth: signs and domains stay."""
    if not literals:
        return calls
    form, tensors = flatten(calls, lambda value: isinstance(value, torch.Tensor))
    varied = [_shrunk(tensor) if place in literals else tensor for place, tensor in enumerate(tensors)]
    found: list[Call] = rebuild(form, varied)  # type: ignore[assignment]
    return found


def _shrunk(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    factor = 1.0 - _SHRINKAGE * torch.rand(value.shape, device=value.device)
    if value.dim() > 1 and value.shape[-1] == value.shape[-2] and torch.equal(value, value.mT):
        factor = (factor + factor.mT) / 2
    return value * factor.to(value.dtype)


def unchanged(first: list[Call], others: Sequence[list[Call]]) -> frozenset[int]:
    """Return the numbers of floating tensors that hold the same in all of these."""
    seen = [flatten(calls, lambda value: isinstance(value, torch.Tensor))[1] for calls in (first, *others)]
    return frozenset(
        place
        for place, (one, *rest) in enumerate(zip(*seen, strict=True))
        if isinstance(one, torch.Tensor) and one.is_floating_point() and all(same_bytes(one, other) for other in rest)
    )
