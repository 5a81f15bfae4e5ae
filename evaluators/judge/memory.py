"""The memory in which candidates of one task are called: inputs, outputs, and what the judge took of them.

The workloads of a task share it: the same addresses hold tensors of other shapes from one call to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from evaluators.judge.arena import GUARD_BYTES, Area, HostMemory, Placed, lay_out
from evaluators.judge.glimpse import Glimpse
from evaluators.judge.gpu_arena import GpuArea
from evaluators.judge.problem import Tensors
from evaluators.vendors.nvidia.driver import Context, SharedMemory
from messages.tasks import TensorSpec


class SharedArea(Protocol):
    """Tensors in memory that a runner maps as well. Siblings: `Area` on the host, `GpuArea` on a GPU."""

    fd: int
    size_bytes: int
    placed: list[Placed]
    tensors: Tensors

    def open_read_only(self) -> int:
        """Return a descriptor for a runner."""

    def fill(self, values: Sequence[torch.Tensor]) -> None:
        """Write contents into the tensors."""

    def forget(self) -> None:
        """Forget what lies there: `fill` writes all of it."""

    def altered(self) -> bool:
        """Say whether somebody else wrote to them since."""

    def settle(self) -> None:
        """Wait until what was written can be seen by others."""

    def restore(self) -> None:
        """Have the memory be as when it was new, whatever a candidate did to it: as fast, and nothing of it left."""

    def poison(self) -> None:
        """Fill tensors and guards with their patterns."""

    def broken_guards(self) -> bool:
        """Say whether anything was written around the tensors since."""


def make_areas(
    name: str, layouts: Sequence[Sequence[TensorSpec]], *, device: str, guarded: bool
) -> Sequence[SharedArea]:
    """Return memory of a device in which each of these sets of tensors has room, one of them at a time."""
    needed_bytes = max(lay_out(name, specs, GUARD_BYTES if guarded else 0)[1] for specs in layouts)
    if device == "cpu":
        memory = HostMemory(name, needed_bytes)
        return [Area(name, specs, guarded=guarded, memory=memory) for specs in layouts]
    shared = SharedMemory(Context(), needed_bytes)
    return [GpuArea(name, specs, guarded=guarded, memory=shared) for specs in layouts]


def make_buffers(layouts: Sequence[Sequence[TensorSpec]], device: str = "cpu") -> list[Buffers]:
    """Return the buffers of each workload: all in the same memory, so that one is in use at a time."""
    inputs = [[spec for spec in specs if spec.role != "output"] for specs in layouts]
    outputs = [[spec for spec in specs if spec.role == "output"] for specs in layouts]
    pairs = zip(
        make_areas("inputs", inputs, device=device, guarded=False),
        make_areas("outputs", outputs, device=device, guarded=True),
        strict=True,
    )
    return [Buffers(*areas, on_gpu=device != "cpu") for areas in pairs]


class Buffers:
    """Inputs and outputs of a workload's calls."""

    def __init__(self, inputs: SharedArea, outputs: SharedArea, *, on_gpu: bool = False) -> None:
        self._on_gpu = on_gpu
        self.inputs, self.outputs = inputs, outputs
        self.glimpse = None if self._on_gpu else Glimpse(self.outputs.tensors)
        """Of the outputs at the last answer; on a GPU all of them are taken then."""
        self._taken: Tensors = tuple(torch.empty_like(place) for place in self.outputs.tensors) if self._on_gpu else ()

    @property
    def results(self) -> Tensors:
        """Outputs of the last call, as they were when it was answered.

        On a host the side is stopped then, so nobody writes them any more. A GPU goes on with what was launched:
        there they are a copy, made at once.
        """
        return self._taken or self.outputs.tensors

    def renew(self) -> None:
        """Lay everything anew for the next candidate, what lies there already as well: the last one may have lied.

        So also when another workload had the memory meanwhile.
        """
        self.inputs.forget()

    def restore(self) -> None:
        """Undo, before the next candidate, what the last one did to the memory itself."""
        self.inputs.restore()
        self.outputs.restore()

    def lay(self, inputs: Tensors, state: Tensors) -> None:
        """Write a call's data."""
        self.inputs.fill((*inputs, *state))

    def settle(self) -> None:
        """Wait until everything laid and poisoned can be seen by the side."""
        self.outputs.settle()

    def take(self) -> None:
        """Take the outputs: part of the measured time of a call, and of an empty one."""
        for place, output in zip(self._taken, self.outputs.tensors, strict=False):
            place.copy_(output)
        self.outputs.settle()

    def empty_rank(self, count: int) -> int:
        """Return which of so many sorted empty calls stands for their cost: the fastest; on a GPU the middle one."""
        return count // 2 if self._on_gpu else 0
