"""Interface of the languages' parts; an exported module has that of its kernel's language."""

from __future__ import annotations

import torch


def check_device(device: torch.device) -> None:
    """Accept a device that the kernel runs on.

    Raises:
        ValueError: it does not.
    """
    raise NotImplementedError


def call_kernel(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Call the kernel with checked, dense tensors and return new outputs; build it first if that was never done.

    Raises:
        RuntimeError: it cannot be built, or failed.
    """
    raise NotImplementedError


def home_device() -> torch.device:
    """Return a device of this machine that the kernel runs on.

    Raises:
        RuntimeError: there is none.
    """
    raise NotImplementedError
