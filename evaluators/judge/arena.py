"""Memory that the judge shares with the sides: one area of inputs, one of outputs, one for the baseline's results.

Each is a memfd. A runner gets the inputs through a descriptor that was opened for reading only, so a write to them
crashes it. Around every output lie guard bytes, and the output itself is filled with a pattern before each call.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Sequence

import msgspec
import torch

from evaluators.judge.problem import DTYPES, Tensors
from evaluators.runners.pages import collapse, rounded
from messages.tasks import TensorSpec

GUARD_BYTES = 4096
_ALIGNMENT = 4096
GUARD_BYTE = 0xA5

_POISON: dict[torch.dtype, tuple[torch.dtype, int]] = {
    torch.float32: (torch.int32, 0x7FC0DEAD),
    torch.float64: (torch.int64, 0x7FF8DEADBEEFDEAD),
    torch.float16: (torch.int16, 0x7E5A),
    torch.bfloat16: (torch.int16, 0x7FDA),
    torch.int64: (torch.int64, 0x5A5A5A5A5A5A5A5A),
    torch.int32: (torch.int32, 0x5A5A5A5A),
    torch.int16: (torch.int16, 0x5A5A),
    torch.int8: (torch.int8, 0x5A),
    torch.uint8: (torch.uint8, 0x5A),
    torch.bool: (torch.uint8, 0x5A),
    torch.float8_e4m3fn: (torch.uint8, 0x7F),
    torch.float8_e5m2: (torch.uint8, 0x7E),
}
"""Per dtype: as what it is filled, and with what. A NaN for floats; for integers a value that is rare."""

_DLPACK_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tensor lies in its area; part of what a runner is told."""

    area: str
    """`inputs` or `outputs`."""
    offset: int
    shape: tuple[int, ...]
    code: int
    """DLDataTypeCode of DLPack."""
    bits: int


class HostMemory:
    """One memfd, mapped here for writing."""

    def __init__(self, name: str, size_bytes: int) -> None:
        self.size_bytes = size_bytes = rounded(size_bytes)
        self.fd = os.memfd_create(f"ksearch-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size_bytes)
        # A runner that made it smaller would have the judge fall over its end.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        collapse(self.fd, size_bytes)
        self.mapped = mmap.mmap(self.fd, size_bytes)

    def restore(self) -> None:
        """Have it consist of huge pages again: who may write to it can split them (`MADV_REMOVE`)."""
        collapse(self.fd, self.size_bytes, is_new=False)


class Area:
    """Memory of the host with tensors in it."""

    def __init__(
        self, name: str, specs: Sequence[TensorSpec], *, guarded: bool, memory: HostMemory | None = None
    ) -> None:
        """Lay the tensors out.

        Args:
            name: `inputs` or `outputs`.
            specs: the tensors.
            guarded: whether guard bytes lie around each.
            memory: where they lie, from its beginning; null: in memory of their own.
        """
        self._guard = GUARD_BYTES if guarded else 0
        self.placed, needed_bytes = lay_out(name, specs, self._guard)
        memory = memory or HostMemory(name, needed_bytes)
        self.fd, self.size_bytes = memory.fd, memory.size_bytes
        self.tensors: Tensors = view_tensors(memory.mapped, self.placed, specs)
        self._laid: list[torch.Tensor | None] = [None] * len(specs)
        self._bytes = torch.frombuffer(memory.mapped, dtype=torch.uint8)
        self._restore = memory.restore

    def open_read_only(self) -> int:
        """Return a new descriptor that cannot be mapped for writing."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def fill(self, values: Sequence[torch.Tensor]) -> None:
        """Write contents into the same places. What lies there already (parameters, mostly) is not copied again."""
        for index, (place, value) in enumerate(zip(self.tensors, values, strict=True)):
            if self._laid[index] is not value:
                place.copy_(value)
                self._laid[index] = value

    def restore(self) -> None:
        """Have the memory be as when it was new, whatever a candidate did to it: as fast, and nothing of it left there.

        Beside tensors and guards, too: an area is larger than what lies in it.
        """
        if self._guard:  # others are mapped read-only
            self._bytes.fill_(GUARD_BYTE)
        self._restore()

    def poison(self) -> None:
        """Fill all tensors with their pattern and the bytes around them with the guard's."""
        for tensor in self.tensors:
            poison(tensor)
        for around in self._guards():
            around.fill_(GUARD_BYTE)

    def settle(self) -> None:
        """Wait until what was written here can be seen by others: at once."""

    def forget(self) -> None:
        """Forget what lies there: `fill` writes all of it."""
        self._laid = [None] * len(self._laid)

    def altered(self) -> bool:
        """Say whether somebody else wrote to the tensors since `fill`: nobody can, they map it read-only."""
        return False

    def broken_guards(self) -> bool:
        """Say whether anything was written around the tensors since `poison`."""
        return any(bool((around != GUARD_BYTE).any()) for around in self._guards())

    def _guards(self) -> list[torch.Tensor]:
        return guards_of(self._bytes, self.placed, self.tensors) if self._guard else []


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with the pattern of its dtype."""
    view, value = _POISON[tensor.dtype]
    tensor.view(view).fill_(value)


def is_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that still hold the pattern."""
    view, value = _POISON[tensor.dtype]
    return tensor.view(view) == value


def view_tensors(
    memory: mmap.mmap | ctypes.Array[ctypes.c_char], placed: Sequence[Placed], specs: Sequence[TensorSpec]
) -> Tensors:
    """Return tensors over mapped memory."""
    return tuple(
        torch.frombuffer(memory, dtype=DTYPES[spec.dtype], count=_count(spec.shape), offset=place.offset).view(
            spec.shape
        )
        for place, spec in zip(placed, specs, strict=True)
    )


def lay_out(name: str, specs: Sequence[TensorSpec], guard_bytes: int) -> tuple[list[Placed], int]:
    """Say where the tensors of an area lie, and how large it is."""
    placed: list[Placed] = []
    end = 0
    for spec in specs:
        offset = -(-(end + guard_bytes) // _ALIGNMENT) * _ALIGNMENT
        placed.append(_place(name, offset, spec))
        end = offset + _size_bytes(spec) + guard_bytes
    return placed, -(-max(end, 1) // _ALIGNMENT) * _ALIGNMENT


def guards_of(area: torch.Tensor, placed: Sequence[Placed], tensors: Tensors) -> list[torch.Tensor]:
    """Return the bytes before and behind every tensor of an area."""
    spans: list[torch.Tensor] = []
    for place, tensor in zip(placed, tensors, strict=True):
        end = place.offset + tensor.numel() * tensor.element_size()
        spans.append(area[place.offset - GUARD_BYTES : place.offset])
        spans.append(area[end : end + GUARD_BYTES])
    return spans


def _place(area: str, offset: int, spec: TensorSpec) -> Placed:
    kind = spec.dtype if spec.dtype in _DLPACK_CODES else spec.dtype.rstrip("0123456789")
    return Placed(
        area=area,
        offset=offset,
        shape=spec.shape,
        code=_DLPACK_CODES[kind],
        bits=DTYPES[spec.dtype].itemsize * 8,
    )


def _count(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


def _size_bytes(spec: TensorSpec) -> int:
    return _count(spec.shape) * DTYPES[spec.dtype].itemsize


def total_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return how many bytes these tensors hold together."""
    return sum(_size_bytes(spec) for spec in specs)
