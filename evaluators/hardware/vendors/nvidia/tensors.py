"""torch tensors over memory of the GPU that torch did not allocate."""

from __future__ import annotations

import torch


class _Memory:
    """Memory in the form that torch takes (the CUDA array interface, version 3)."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def view_memory(address: int, size_bytes: int) -> torch.Tensor:
    """Return memory of the first visible GPU as bytes: a uint8 tensor of shape (size_bytes,)."""
    return torch.as_tensor(_Memory(address, size_bytes), device="cuda:0")
