"""The start of a CPU runner with torch: its sandbox, and the task's tensors in the mapped memory."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from evaluators.runners.base import arranged, map_areas
from evaluators.runners.warm import DTYPES, Order
from evaluators.sandbox.confine import confine
from evaluators.sandbox.profiles import run_interpreted

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def begin_on_cpu(order: Order) -> list[list[list[torch.Tensor]]]:
    """Enter the sandbox. Returns the tensors of each workload in each arrangement, dense: inputs, then outputs."""
    order.begin()
    spec = order.spec
    size_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * _PAGE_BYTES
    bases = map_areas({**spec, "inputs_fd": order.inputs_fd, "outputs_fd": order.outputs_fd})
    terms: object = spec["terms"]
    profile = run_interpreted(
        str(spec["folder"]),
        reads=(os.path.dirname(str(spec["product"])),),  # noqa: PTH120 - a path as the judge gave it
        memory_bytes=size_bytes + spec["memory_bytes"],
        file_bytes=spec["file_bytes"],
        keeps_cores=isinstance(terms, dict) and bool(terms["keeps_cores"]),
    )
    order.isolation = confine(profile).claim
    workloads: object = spec["workloads"]
    return [_placed(placed, bases) for placed in workloads] if isinstance(workloads, list) else []


def _placed(placed: Sequence[Mapping[str, Any]], bases: Mapping[str, int]) -> list[list[torch.Tensor]]:
    def view(index: int, offset: int) -> torch.Tensor:
        tensor = placed[index]
        dtype = DTYPES[tensor["code"], tensor["bits"]]
        size_bytes = math.prod(tensor["shape"]) * dtype.itemsize
        memory = (ctypes.c_char * size_bytes).from_address(bases[tensor["area"]] + offset)
        return torch.frombuffer(memory, dtype=dtype).view(tensor["shape"])

    return arranged(placed, view)
