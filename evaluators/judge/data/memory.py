"""The memory in which the candidates of a task are called, and the amount of data that a judge keeps.

A side is stopped some tenths of a millisecond after its answer, and its outputs are compared then. `Glimpse` finds
threads that go on meanwhile: it keeps some elements, drawn for each call, as they are at the answer. A candidate that
leaves one element in a hundred for later passes one call in thirteen, and there are dozens. Not covered: work that is
not in the outputs, and work beside the few microseconds of an empty call.

Data is kept because expected values in float64 take longer to compute than good candidates. All workloads of a task
share the memory, one at a time.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence

import torch

from evaluators.hardware.vendors.nvidia.driver import Context, SharedMemory
from evaluators.judge.data.arena import PLACES, Area, GpuArea, HostMemory, SharedArea, crossings, lay_out, total_bytes
from evaluators.judge.reference.problem import Problem, Tensors, needed_bytes
from messages.tasks import TensorSpec

_PLACES = 256
"""Elements of all outputs together, which must be read within a few microseconds."""
_LEAST_PLACES = 16
"""Elements of each output at least."""
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Glimpse:
    """Some elements of outputs at one moment."""

    def __init__(self) -> None:
        self._bits: list[torch.Tensor] = []
        self._places: list[torch.Tensor] = []
        self._kept: list[torch.Tensor] = []

    def draw(self, outputs: Tensors) -> None:
        """Choose the elements of the next look. Takes time."""
        self._bits = [output.view(-1).view(_INTEGERS[output.element_size()]) for output in outputs]
        most = max(_LEAST_PLACES, _PLACES // max(1, len(self._bits)))
        self._places = [_drawn(bits.numel(), most) for bits in self._bits]
        self._kept = [torch.empty(len(places), dtype=bits.dtype) for bits, places in self._each()]

    def take(self) -> None:
        """Read them now."""
        for (bits, places), kept in zip(self._each(), self._kept, strict=True):
            torch.index_select(bits, 0, places, out=kept)

    def changed(self) -> tuple[int, int]:
        """Return the number of changed elements, and of all that were read."""
        pairs = list(zip(self._each(), self._kept, strict=True))
        changed = sum(int((bits[places] != kept).sum()) for (bits, places), kept in pairs)
        return changed, sum(len(kept) for _, kept in pairs)

    def _each(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(self._bits, self._places, strict=True)) if self._places else []


def _drawn(count: int, most: int) -> torch.Tensor:
    """Return some indices below `count`; all of them if there are no more than `most`."""
    if count <= most:
        return torch.arange(count)
    # From the system's entropy, since a problem may have changed torch's generator.
    return torch.frombuffer(bytearray(os.urandom(8 * most)), dtype=torch.int64).remainder(count)


_LEAST_ON_HOST, _HOST_ONE_IN = 512 << 20, 16
"""On a host a judge keeps data in a sixteenth of the memory, or at least this much; there are three judges."""
_TIMED_ON_GPU = 8 << 30
_GPU_SHARE = 0.4
"""Share of a GPU's memory; and of what is free beyond the needs of judging at most half, since candidates need some."""
_SCRATCH_ONE_IN = 16
"""Share (one in) of a GPU's memory that a judge may hold without using it."""


class Room:
    """Memory for the data of all workloads of a task; first come, first served."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = self._free_bytes = most_bytes
        self._is_open = True

    def take(self, size_bytes: int) -> bool:
        """Reserve `size_bytes`; return False if it is closed or full."""
        if not self._is_open or size_bytes > self._free_bytes:
            return False
        self._free_bytes -= size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Release memory that was taken."""
        self._free_bytes += size_bytes

    def close(self) -> None:
        """Refuse further reservations; reserved memory must be released."""
        self._is_open = False

    def reopen(self, *, halved: bool) -> None:
        """Accept reservations again, of all of it or of half. If more is taken, the rest waits for its release."""
        self._is_open = True
        lost_bytes = self._most_bytes - self._most_bytes // 2 if halved else 0
        self._most_bytes -= lost_bytes
        self._free_bytes -= lost_bytes


def release_scratch(device: str) -> None:
    """Return memory of finished computations to the GPU: torch keeps it, and the candidate's process needs some."""
    if device == "cpu":
        return
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if unused > torch.cuda.mem_get_info(device)[1] // _SCRATCH_ONE_IN:
        torch.cuda.empty_cache()


def room_for(problems: Sequence[Problem]) -> Room:
    """Return the room for the check data of a task's candidates."""
    if problems[0].device == "cpu":
        return Room(host_bytes())
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(problems[0].device)
    return Room(gpu_bytes(free, total, max(map(needed_bytes, problems))))


def gpu_bytes(free: int, total: int, needed: int) -> int:
    """Return the part of a GPU's memory that data for the next candidates may take."""
    return max(0, min(int(_GPU_SHARE * total), (free - needed) // 2))


def timed_bytes(problem: Problem) -> int:
    """Return the size of data for timed calls that is made before they begin."""
    return host_bytes() if problem.device == "cpu" else _TIMED_ON_GPU


def host_bytes() -> int:
    """Return the part of a host's memory that one kind of data may take."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_LEAST_ON_HOST, memory_bytes // _HOST_ONE_IN)


_FEW_PLACES = 2
"""Places of tensors so large that three places of each would leave too little memory for the rest."""
_GPU_ONE_IN = 8
"""Share (one in) of a GPU's memory that the places may take before there are fewer of them."""


def make_areas(
    name: str, layouts: Sequence[Sequence[TensorSpec]], *, device: str, guarded: bool, places: int = 1
) -> Sequence[SharedArea]:
    """Return memory of a device in which each of these sets of tensors fits, one of them at a time."""
    needed_bytes = max(lay_out(name, specs, guarded=guarded, places=places)[1] for specs in layouts)
    if device == "cpu":
        memory = HostMemory(name, needed_bytes)
        return [Area(name, specs, guarded=guarded, places=places, memory=memory) for specs in layouts]
    shared = SharedMemory(Context(), needed_bytes)
    return [GpuArea(name, specs, guarded=guarded, places=places, memory=shared) for specs in layouts]


def make_buffers(layouts: Sequence[Sequence[TensorSpec]], device: str = "cpu") -> list[Buffers]:
    """Return the buffers of each workload, all in the same memory, so that one is in use at a time."""
    inputs = [[spec for spec in specs if spec.role != "output"] for specs in layouts]
    outputs = [[spec for spec in specs if spec.role == "output"] for specs in layouts]
    places = places_for(layouts, host_bytes() if device == "cpu" else torch.cuda.mem_get_info(device)[1] // _GPU_ONE_IN)
    pairs = zip(
        make_areas("inputs", inputs, device=device, guarded=False, places=places),
        make_areas("outputs", outputs, device=device, guarded=True, places=places),
        strict=True,
    )
    return [Buffers(*areas, places=places, on_gpu=device != "cpu") for areas in pairs]


def places_for(layouts: Sequence[Sequence[TensorSpec]], most_bytes: int) -> int:
    """Return the number of places of inputs and outputs that fit into this memory."""
    moving_bytes = max(total_bytes([spec for spec in specs if spec.role != "parameter"]) for specs in layouts)
    return PLACES if PLACES * moving_bytes <= most_bytes else _FEW_PLACES


class Moves:
    """Draws the arrangement of each call of a candidate."""

    def __init__(self, places: int, *, is_timed: bool) -> None:
        """Begin.

        Args:
            places: places of each tensor.
            is_timed: draw only arrangements in which all tensors are at places of the same number, so that what a
                candidate keeps for each set of addresses is found again. All of them come among the first calls.
                Otherwise the first two calls have no place in common, the third crosses those, then any arrangement is
                drawn.
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
        """Places of each tensor, without parameters."""
        self.has_few_places = places < PLACES
        """True if the tensors are so large that they have fewer places than others."""
        self._moves = Moves(places, is_timed=True)
        self.glimpse = None if self._on_gpu else Glimpse()
        """Look at the outputs at the last answer; on a GPU all of them are copied then."""
        self._taken: Tensors = tuple(torch.empty_like(place) for place in self.outputs.tensors) if self._on_gpu else ()

    @property
    def results(self) -> Tensors:
        """Outputs of the last call, as they were when it was answered.

        On a host the side is stopped then, so it can no longer write them. A GPU continues with launched work: there
        they are a copy, made at once.
        """
        return self._taken or self.outputs.tensors

    def renew(self) -> None:
        """Write everything again for the next candidate, even unchanged data, since the last one may have changed it.

        Also needed if another workload had the memory meanwhile.
        """
        self.inputs.forget()

    def restore(self) -> None:
        """Undo, before the next candidate, the last one's changes to the memory itself."""
        self.inputs.restore()
        self.outputs.restore()

    @property
    def arrangement(self) -> int:
        """Return the number of the current arrangement."""
        return self.outputs.arrangement

    def lay(self, inputs: Tensors, state: Tensors, *, at: int | None = None) -> None:
        """Write a call's data in an arrangement; None: one for a timed call."""
        number = self._moves.next() if at is None else at
        self.inputs.arrange(number)
        self.outputs.arrange(number)
        self.inputs.fill((*inputs, *state))

    def settle(self) -> None:
        """Wait until the side can see everything that was written and poisoned."""
        self.outputs.settle()

    def take(self) -> None:
        """Copy the outputs, which is part of the measured time of a call, and of an empty one."""
        for place, output in zip(self._taken, self.outputs.tensors, strict=False):
            place.copy_(output)
        self.outputs.settle()

    def empty_rank(self, count: int) -> int:
        """Return the rank of the empty call that represents their cost: the fastest; on a GPU the middle one."""
        return count // 2 if self._on_gpu else 0
