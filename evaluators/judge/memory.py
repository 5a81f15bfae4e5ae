"""The memory in which candidates of one task are called: inputs, outputs, and what the judge took of them.

The workloads of a task share it: the same addresses hold tensors of other shapes from one call to the next.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import torch

from evaluators.judge.arena import GUARD_BYTES, PLACES, Area, HostMemory, Placed, crossings, lay_out, total_bytes
from evaluators.judge.glimpse import Glimpse
from evaluators.judge.gpu_arena import GpuArea
from evaluators.judge.keeping import host_bytes
from evaluators.judge.problem import Tensors
from evaluators.vendors.nvidia.driver import Context, SharedMemory
from messages.tasks import TensorSpec

_FEW_PLACES = 2
"""Where tensors are so large that three places of each would leave too little memory for the rest."""
_GPU_ONE_IN = 8
"""Part of a GPU's memory that the places may take before there are fewer of them."""


class SharedArea(Protocol):
    """Tensors in memory that a runner maps as well. Siblings: `Area` on the host, `GpuArea` on a GPU."""

    fd: int
    size_bytes: int
    placed: list[Placed]
    tensors: Tensors
    """At their places of the current arrangement."""
    arrangement: int

    @property
    def moving(self) -> Tensors:
        """Return the tensors that have several places, at each of them."""

    def arrange(self, number: int) -> None:
        """Choose the arrangement of the calls that follow; `fill` writes what it moves."""

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
    name: str, layouts: Sequence[Sequence[TensorSpec]], *, device: str, guarded: bool, places: int = 1
) -> Sequence[SharedArea]:
    """Return memory of a device in which each of these sets of tensors has room, one of them at a time."""
    needed_bytes = max(lay_out(name, specs, GUARD_BYTES if guarded else 0, places)[1] for specs in layouts)
    if device == "cpu":
        memory = HostMemory(name, needed_bytes)
        return [Area(name, specs, guarded=guarded, places=places, memory=memory) for specs in layouts]
    shared = SharedMemory(Context(), needed_bytes)
    return [GpuArea(name, specs, guarded=guarded, places=places, memory=shared) for specs in layouts]


def make_buffers(layouts: Sequence[Sequence[TensorSpec]], device: str = "cpu") -> list[Buffers]:
    """Return the buffers of each workload: all in the same memory, so that one is in use at a time."""
    inputs = [[spec for spec in specs if spec.role != "output"] for specs in layouts]
    outputs = [[spec for spec in specs if spec.role == "output"] for specs in layouts]
    places = places_for(layouts, host_bytes() if device == "cpu" else _gpu_bytes(device))
    pairs = zip(
        make_areas("inputs", inputs, device=device, guarded=False, places=places),
        make_areas("outputs", outputs, device=device, guarded=True, places=places),
        strict=True,
    )
    return [Buffers(*areas, places=places, on_gpu=device != "cpu") for areas in pairs]


def places_for(layouts: Sequence[Sequence[TensorSpec]], most_bytes: int) -> int:
    """Return how many places inputs and outputs have, given how much memory they may take together."""
    moving_bytes = max(total_bytes([spec for spec in specs if spec.role != "parameter"]) for specs in layouts)
    return PLACES if PLACES * moving_bytes <= most_bytes else _FEW_PLACES


def _gpu_bytes(device: str) -> int:
    return int(torch.cuda.mem_get_info(device)[1]) // _GPU_ONE_IN


class Moves:
    """Draws the arrangement of each call of a candidate."""

    def __init__(self, places: int, *, is_timed: bool) -> None:
        """Begin.

        Args:
            places: of each tensor.
            is_timed: draw only arrangements in which all tensors are at places of the same number, so that what a
                candidate keeps for each set of addresses is found again. All of them come among the first calls. Else
                the first two calls have no place in common, the third crosses those, then any arrangement is drawn.
        """
        self._chance = random.SystemRandom()
        self._crossings = crossings(places)
        self._places = places
        self._count = places if is_timed else places + len(self._crossings)
        self._first = self._chance.sample(range(places), places if is_timed else _FEW_PLACES)
        if not is_timed:
            self._first.insert(0, places + self._crossings.index((self._first[0], self._first[1])))

    def next(self) -> int:
        """Return the number of the next arrangement."""
        return self._first.pop() if self._first else self._chance.randrange(self._count)

    def crossed(self) -> int:
        """Return the number of an arrangement in which the places of tensors differ."""
        return self._places + self._chance.randrange(len(self._crossings))


class Buffers:
    """Inputs and outputs of a workload's calls."""

    def __init__(self, inputs: SharedArea, outputs: SharedArea, *, places: int, on_gpu: bool = False) -> None:
        self._on_gpu = on_gpu
        self.inputs, self.outputs = inputs, outputs
        self.places = places
        """Of each tensor, parameters aside."""
        self._moves = Moves(places, is_timed=True)
        self.glimpse = None if self._on_gpu else Glimpse()
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

    @property
    def has_few_places(self) -> bool:
        """Whether the tensors are so large that they have fewer places than others."""
        return self.places < PLACES

    @property
    def arrangement(self) -> int:
        """Return the number of the current arrangement."""
        return self.outputs.arrangement

    def lay(self, inputs: Tensors, state: Tensors, *, at: int | None = None) -> None:
        """Write a call's data, in an arrangement; None: as for a timed call."""
        number = self._moves.next() if at is None else at
        self.inputs.arrange(number)
        self.outputs.arrange(number)
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
