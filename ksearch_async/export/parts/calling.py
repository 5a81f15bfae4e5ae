"""Part of exported modules: checks what the kernel is given, and makes its outputs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ksearch_async.export.parts.facts import ARGUMENTS, NUMBERS, OUTPUTS
from ksearch_async.export.parts.language import call_kernel, check_device


def run(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Call the kernel with what `ARGUMENTS` lists and return new outputs.

    Tensors that are not dense are copied first. There is no backward.

    Raises:
        TypeError: something is no dense tensor, or has another dtype.
        ValueError: a shape or a device is another.
        RuntimeError: gradients are wanted, or the kernel cannot be built or failed.
    """
    if len(tensors) != len(ARGUMENTS):
        raise TypeError(f"the kernel takes {len(ARGUMENTS)} tensors, and {len(tensors)} are given")
    for (name, shape, dtype), tensor in zip(ARGUMENTS, tensors, strict=True):
        _check(name, shape, dtype, tensor)
    device = tensors[0].device
    for (name, _, _), tensor in zip(ARGUMENTS, tensors, strict=True):
        if tensor.device != device:
            raise ValueError(f"{name} is on {tensor.device}, and {ARGUMENTS[0][0]} on {device}: move them together")
    check_device(device)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError("the kernel has no backward: call it under torch.no_grad(), or detach its inputs")
    return call_kernel(tuple(tensor.detach().contiguous() for tensor in tensors))


def new_outputs(device: torch.device) -> tuple[torch.Tensor, ...]:
    """Return tensors for the outputs; they hold garbage."""
    return tuple(torch.empty(shape, dtype=getattr(torch, dtype), device=device) for _, shape, dtype in OUTPUTS)


def check_numbers(*numbers: float) -> None:
    """Accept the numbers that the kernel was judged with.

    Raises:
        ValueError: one is another.
    """
    for (name, _, judged), number in zip(NUMBERS, numbers, strict=True):
        if number != judged:
            raise ValueError(f"{name} is {number!r}; the kernel was made for {judged!r}")


def with_numbers(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | float]:
    """Return tensors with the numbers that stand among them."""
    given: list[torch.Tensor | float] = list(tensors)
    for _, place, number in NUMBERS:
        given.insert(place, number)
    return given


def _check(name: str, shape: tuple[int, ...], dtype: str, tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
        raise TypeError(f"{name} is no dense tensor, but {type(tensor).__name__}")
    if tensor.dtype != getattr(torch, dtype):
        raise TypeError(f"{name} is {str(tensor.dtype).removeprefix('torch.')}; the kernel was made for {dtype}")
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; the kernel was made for {shape}")
