"""Runs Triton programs and torch modules on a GPU: shared by both, the warm process and the start on the GPU.

Results of modules are copied to the judge's memory behind the second event: the copy is not in the events' time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime import driver

from evaluators.hardware.vendors.nvidia.tensors import view_memory
from evaluators.process.sandbox.confine import Confined, confine
from evaluators.process.sandbox.profiles import run_cuda
from evaluators.runners.base import GIVE, HOLD, REUSED, SEAL
from evaluators.runners.cuda import Harness, Sealing
from evaluators.runners.denial import Rules
from evaluators.runners.kernels import KERNELS, seed_cache
from evaluators.runners.module_call import Loader, is_destination, nested
from evaluators.runners.triton_hooks import remember_configurations
from evaluators.runners.warm import Order, be_ready_to_launch, load_function, numbers_among

_DEVICE = "cuda:0"
_T = TypeVar("_T")


def prepare() -> None:
    """Make the warm process ready; it never touches the GPU."""
    # Its library is compiled with the host's C compiler and loaded once here; it asks nothing of the GPU.
    driver.set_active(CudaDriver())
    be_ready_to_launch()


def serve_function(order: Order) -> None:
    """Run one Triton program, to the end of the process."""
    began = _Began(order)
    with began.stream():
        _serve_function(began, Rules(order.spec["terms"], order.denial), numbers_among)


def serve_module(order: Order) -> None:
    """Run one torch module or function, to the end of the process."""
    began, spec = _Began(order), order.spec
    with began.stream():
        rules = Rules(spec["terms"], order.denial)
        if is_destination(spec):
            _serve_function(began, rules, nested)
        loader = Loader(spec, began.workloads, rules, device=_DEVICE, delivers=False)
        began.harness.after = loader.hand_over
        others = {
            HOLD: loader.hold,
            GIVE: lambda: _finished(loader.give),
            REUSED: lambda: _finished(loader.reused),
        }
        began.serve(lambda workload: _finished(lambda: loader.load(workload)), others)


def _serve_function(began: _Began, rules: Rules, given: Callable[..., Any]) -> None:
    began.serve(lambda _: load_function(began.order.spec, began.workloads, rules, given), {})


class _Began:
    """A runner behind its sandbox, with the GPU and the task's tensors."""

    def __init__(self, order: Order) -> None:
        order.begin()
        self.order, spec = order, order.spec
        os.environ["TRITON_CACHE_DIR"] = os.environ["TORCH_EXTENSIONS_DIR"] = str(spec["cache"])
        built = os.path.dirname(str(spec["product"]))  # noqa: PTH120 - a path as the judge gave it
        profile = run_cuda(
            str(spec["folder"]), reads=(built,), writes=(str(spec["cache"]),), file_bytes=spec["cache_bytes"]
        )
        self._confined: Confined = confine(profile)
        self.harness = Harness(str(spec["cupti"]))
        self.harness.ran = remember_configurations()
        bases = self.harness.map_areas(spec, order.inputs_fd, order.outputs_fd)
        areas = {name: view_memory(base, int(str(spec[f"{name}_bytes"]))) for name, base in bases.items()}

        def view(placed: Mapping[str, Any], dtype: torch.dtype, offset: int) -> torch.Tensor:
            data = areas[placed["area"]][offset : offset + math.prod(placed["shape"]) * dtype.itemsize]
            return data.view(dtype).view(placed["shape"])

        self.workloads = order.tensors(view)
        seed_cache(os.path.join(built, KERNELS), str(spec["cache"]))  # noqa: PTH118 - as above

    def serve(self, load: Callable[[int], Any], others: Mapping[int, Callable[[], int]]) -> None:
        """Begin to take system calls away, since torch has what it needs to begin by now; then answer frames."""
        sealing = Sealing(self._confined)
        self.order.isolation = self._confined.claim
        more = {**others, SEAL: sealing.complete}
        self.order.serve(load, self.harness.span, others=more, ways=self.harness.ways)

    def stream(self) -> torch.cuda.StreamContext:
        """Return a context in which torch uses the harness's stream."""
        return torch.cuda.stream(torch.cuda.ExternalStream(self.harness.stream))  # type: ignore[no-untyped-call]


def _finished(work: Callable[[], _T]) -> _T:
    result = work()
    torch.cuda.synchronize()
    return result
