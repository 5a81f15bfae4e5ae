"""Part of exported modules: a kernel in CUDA, built with nvcc for the GPU at hand."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

import torch

from ksearch_async.export.parts.calling import new_outputs
from ksearch_async.export.parts.facts import ARCHITECTURE, FLAGS, TITLE
from ksearch_async.export.parts.native import built, find_program, load_library, tvm_ffi_flags, units


def check_device(device: torch.device) -> None:
    """Accept a GPU."""
    if device.type != "cuda":
        raise ValueError(f"the kernel runs on a GPU (judged on {ARCHITECTURE}), and the tensors are on {device}")


def call_kernel(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Call the kernel on the current stream of the tensors' GPU; build it for that first if that was never done."""
    device = tensors[0].device
    major, minor = torch.cuda.get_device_capability(device)
    with torch.cuda.device(device):
        outputs = new_outputs(device)
        _kernel(f"sm_{major}{minor}")((*tensors, *outputs), torch.cuda.current_stream(device).cuda_stream)
    return outputs


def home_device() -> torch.device:
    """Return the current GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError(f"kernel {TITLE!r} needs an NVIDIA GPU, and PyTorch finds none here")
    return torch.device("cuda", torch.cuda.current_device())


def build_command(architecture: str) -> tuple[str, list[str]]:
    """Return nvcc and its arguments for an architecture such as `sm_90`.

    Raises:
        RuntimeError: there is no compiler.
    """
    homes = [f"{home}/bin/nvcc" for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")) if home]
    hint = "install the CUDA toolkit, or set CUDA_HOME"
    compiler = find_program([*homes, "nvcc", "/usr/local/cuda/bin/nvcc"], hint)
    number = architecture.removeprefix("sm_")
    exact = f"{number}a" if int(number) >= 90 else number
    target = ["-gencode", f"arch=compute_{exact},code=sm_{exact}"]
    return compiler, [*FLAGS, *target, *units((".cu",)), *tvm_ffi_flags()]


@functools.cache
def _kernel(architecture: str) -> Callable[[Sequence[torch.Tensor], int | None], None]:
    return load_library(built(*build_command(architecture)))
