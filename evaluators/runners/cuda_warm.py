"""Shared by GPU runners that need torch: the warm process, and the start on the GPU."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime import driver

from evaluators.hardware.vendors.nvidia.tensors import view_memory
from evaluators.runners.autotune import remember_configurations
from evaluators.runners.base import arranged
from evaluators.runners.cuda import Harness, Sealing
from evaluators.runners.launches import Launches  # noqa: F401 - behind the sandbox our own packages cannot be read
from evaluators.runners.warm import DTYPES, Order, be_ready_to_launch, fork_runners
from evaluators.sandbox.confine import Confined, confine
from evaluators.sandbox.profiles import run_cuda


def fork_gpu_runners(serve_candidate: Callable[[Order], None]) -> int:
    """Serve one judge until it goes away; see `fork_runners`. This process never touches the GPU."""
    # Its library is compiled with the host's C compiler and loaded once here; it asks nothing of the GPU.
    driver.set_active(CudaDriver())
    be_ready_to_launch()
    return fork_runners(serve_candidate)


class Began:
    """A runner behind its sandbox, with the GPU and the task's tensors."""

    def __init__(self, order: Order) -> None:
        """Begin.

        Raises:
            DriverError: there is no usable GPU.
        """
        order.begin()
        self._order, spec = order, order.spec
        os.environ["TRITON_CACHE_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] = str(spec["cache"])
        reads = (os.path.dirname(str(spec["product"])),)  # noqa: PTH120 - a path as the judge gave it
        profile = run_cuda(
            str(spec["folder"]), reads=reads, writes=(str(spec["cache"]),), file_bytes=spec["cache_bytes"]
        )
        self.confined: Confined = confine(profile)
        self.harness = Harness(str(spec["cupti"]))
        self.harness.ran = remember_configurations()
        bases = self.harness.map_areas(spec, order.inputs_fd, order.outputs_fd)
        self.workloads = _tensors(spec, bases)
        """Of each workload in each arrangement, dense, on the GPU: inputs, then outputs."""

    def sealing(self) -> Sealing:
        """Begin to take system calls away; torch has what it needs to begin by now."""
        sealing = Sealing(self.confined)
        self._order.isolation = self.confined.claim
        return sealing

    def stream(self) -> torch.cuda.StreamContext:
        """Return a context in which torch uses the harness's stream."""
        return torch.cuda.stream(torch.cuda.ExternalStream(self.harness.stream))  # type: ignore[no-untyped-call]


def _tensors(spec: Mapping[str, object], bases: dict[str, int]) -> list[list[list[torch.Tensor]]]:
    areas = {name: view_memory(base, int(str(spec[f"{name}_bytes"]))) for name, base in bases.items()}
    workloads = spec["workloads"]
    return [_placed(placed, areas) for placed in workloads] if isinstance(workloads, list) else []


def _placed(placed: Sequence[Mapping[str, Any]], areas: Mapping[str, torch.Tensor]) -> list[list[torch.Tensor]]:
    def view(index: int, offset: int) -> torch.Tensor:
        tensor = placed[index]
        dtype = DTYPES[tensor["code"], tensor["bits"]]
        data = areas[tensor["area"]][offset : offset + math.prod(tensor["shape"]) * dtype.itemsize]
        return data.view(dtype).view(tensor["shape"])

    return arranged(placed, view)
