"""Part of exported modules: a kernel in C++, built with this machine's compiler for CPUs like the judged one."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ksearch_async.export.parts.calling import new_outputs
from ksearch_async.export.parts.facts import ARCHITECTURE, CPU_FEATURES, FLAGS
from ksearch_async.export.parts.native import built, find_program, load_library, tvm_ffi_flags, units


def check_device(device: torch.device) -> None:
    """Accept the CPU."""
    if device.type != "cpu":
        raise ValueError(f"the kernel runs on the CPU, and the tensors are on {device}")


def call_kernel(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Call the kernel; build it first if that was never done."""
    outputs = new_outputs(tensors[0].device)
    _kernel()((*tensors, *outputs), None)
    return outputs


def home_device() -> torch.device:
    """Return the CPU."""
    return torch.device("cpu")


@functools.cache
def _kernel() -> Callable[[Sequence[torch.Tensor], int | None], None]:
    wanted = os.environ.get("CXX")
    hint = "CXX is set to it; set it to a compiler, or not at all" if wanted else "install g++ or clang++, or set CXX"
    compiler = find_program([wanted] if wanted else ["c++", "g++", "clang++"], hint)
    flags = [*FLAGS, f"-march={_march()}", *units((".cpp", ".cc", ".cxx")), *tvm_ffi_flags()]
    return load_library(built(compiler, flags))


def _march() -> str:
    """Return the judged level where this CPU has it, else `native`."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    here = next((line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features"))), [])
    return ARCHITECTURE if set(here) >= CPU_FEATURES else "native"
