"""Part of exported modules: a kernel in Triton. Nothing is built ahead; Triton compiles at the first call.

On a CPU it runs only in Triton's interpreter, which is slow: `TRITON_INTERPRET=1`, set before the first call.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable

import torch

from ksearch_async.export.parts.calling import new_outputs, with_numbers
from ksearch_async.export.parts.checking import load_text
from ksearch_async.export.parts.facts import ENTRY_POINT, SOURCES, TITLE


def check_device(device: torch.device) -> None:
    """Accept a GPU, and the CPU under Triton's interpreter."""
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the kernel runs on a GPU, and the tensors are on {device}")
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise ValueError(
            "the tensors are on the CPU, where Triton only has an interpreter: move them to a GPU, or set "
            "TRITON_INTERPRET=1 before the first call"
        )


def call_kernel(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Call the kernel on the current stream of the tensors' device."""
    device = tensors[0].device
    with torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        outputs = new_outputs(device)
        _kernel()(*with_numbers(tensors), *outputs)
    return outputs


def home_device() -> torch.device:
    """Return the current GPU, or else the CPU with the interpreter switched on."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    os.environ["TRITON_INTERPRET"] = "1"
    return torch.device("cpu")


@functools.cache
def _kernel() -> Callable[..., object]:
    functions: dict[str, Callable[..., object]] = vars(load_text("kernel", next(iter(SOURCES.values()))))
    if ENTRY_POINT not in functions:
        raise RuntimeError(f"kernel {TITLE!r} defines no {ENTRY_POINT}")
    return functions[ENTRY_POINT]
