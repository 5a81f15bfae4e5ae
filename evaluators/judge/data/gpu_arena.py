"""Memory of a GPU that the judge shares with the sides; the sibling of `arena.py`.

The driver keeps nobody from writing to memory that it has mapped, so the judge looks after every call whether the
inputs are what it laid there. Runners map nothing else of the judge's: expected values lie in its own context.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import torch

from evaluators.hardware.vendors.nvidia.driver import Context, SharedMemory
from evaluators.hardware.vendors.nvidia.tensors import view_memory
from evaluators.judge.data.arena import GUARD_BYTE, GUARD_BYTES, Arranged, guards_of, lay_out
from evaluators.judge.reference.problem import DTYPES, Tensors
from messages.tasks import TensorSpec


class GpuArea(Arranged):
    """Shared memory of the first visible GPU with tensors in it."""

    def __init__(
        self,
        name: str,
        specs: Sequence[TensorSpec],
        *,
        guarded: bool,
        places: int = 1,
        memory: SharedMemory | None = None,
    ) -> None:
        """Lay the tensors out.

        Args:
            name: `inputs` or `outputs`.
            specs: the tensors.
            guarded: whether guard bytes lie around each.
            places: how many each has, parameters aside.
            memory: where they lie, from its beginning; None: in memory of their own.
        """
        self._guard = GUARD_BYTES if guarded else 0
        placed, needed_bytes = lay_out(name, specs, self._guard, places)
        memory = memory or SharedMemory(Context(), needed_bytes)
        self.fd, self.size_bytes = memory.fd, memory.size_bytes
        self._bytes = view_memory(memory.address, memory.size_bytes)
        super().__init__(placed, lambda index, at: _tensor_at(self._bytes, specs[index], at))

    def open_read_only(self) -> int:
        """Return a new descriptor. It can be mapped for writing, too."""
        return os.dup(self.fd)

    def altered(self) -> bool:
        """Say whether somebody else wrote to the tensors since `fill`."""
        differences = [
            (place.view(-1).view(torch.uint8) != laid.contiguous().view(-1).view(torch.uint8)).any()
            for place, laid in zip(self.tensors, self._laid, strict=True)
            if laid is not None
        ]
        found = bool(torch.stack(differences).any()) if differences else False
        if found:  # the next call gets all of it anew
            self.forget()
        return found

    def settle(self) -> None:
        """Wait until what was written here can be seen by others."""
        torch.cuda.synchronize()

    def restore(self) -> None:
        """Leave nothing of what a candidate wrote, beside tensors and guards too; `fill` writes all of it then."""
        self._bytes.fill_(GUARD_BYTE)
        self.forget()

    def broken_guards(self) -> bool:
        """Say whether anything was written around the tensors since `poison`."""
        spans = self._guards()
        return bool((torch.cat(spans) != GUARD_BYTE).any()) if spans else False

    def _guards(self) -> list[torch.Tensor]:
        return guards_of(self._bytes, self.offsets, self.tensors) if self._guard else []


def tensors_in(area: torch.Tensor, specs: Sequence[TensorSpec]) -> Tensors:
    """Return the tensors that lie in an area's bytes: without guards, each at its only place."""
    placed, _ = lay_out("", specs, 0)
    return tuple(_tensor_at(area, spec, place.offsets[0]) for place, spec in zip(placed, specs, strict=True))


def _tensor_at(area: torch.Tensor, spec: TensorSpec, offset: int) -> torch.Tensor:
    dtype = DTYPES[spec.dtype]
    return area[offset : offset + math.prod(spec.shape) * dtype.itemsize].view(dtype).view(spec.shape)
