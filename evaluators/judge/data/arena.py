"""Memory that the judge shares with the sides: areas of inputs, of outputs, and of the baseline's results.

On a host, a runner gets the inputs through a descriptor that was opened for reading only, so writing to them crashes
it. Every output is surrounded by guard bytes, and filled with a pattern before each call.

Inputs and outputs have several places each; parameters have one. An arrangement determines the place of each tensor in
a call. The other places keep older contents: a candidate that uses an address from an earlier call reads old inputs, or
leaves its output unwritten.
"""

from __future__ import annotations

import fcntl
import itertools
import math
import mmap
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec
import torch

from evaluators.hardware.vendors.nvidia.driver import Context, SharedMemory
from evaluators.hardware.vendors.nvidia.tensors import view_memory
from evaluators.judge.reference.problem import DTYPES, Tensors
from evaluators.runners.base import collapse, rounded
from messages.tasks import TensorSpec

GUARD_BYTES = 4096
_ALIGNMENT = 4096
GUARD_BYTE = 0xA5
PLACES = 3
"""Places of each input and output, if memory allows."""
_SPOILT_BYTES = 64 << 10
"""Bytes overwritten at the beginning of a place that a tensor leaves, since some inputs are the same in every call."""

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
"""Fill pattern of each dtype: the type to fill as, and the value. A NaN for floats; for integers a rare value."""

_DLPACK_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6, "float8_e4m3fn": 10, "float8_e5m2": 12}


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Places of a tensor in its area; part of a `RunnerSpec`."""

    area: str
    """`inputs` or `outputs`."""
    offsets: tuple[int, ...]
    """Offset in each arrangement; a parameter has only one."""
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
        # A runner that shrank it would crash the judge at its end.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        collapse(self.fd, size_bytes)
        self.bytes = torch.frombuffer(mmap.mmap(self.fd, size_bytes), dtype=torch.uint8)


class SharedArea(ABC):
    """Tensors in memory that a runner also maps, at their places of the current arrangement."""

    def __init__(self, placed: list[Placed], specs: Sequence[TensorSpec], area: torch.Tensor, *, guarded: bool) -> None:
        """Take over an area's bytes; `guarded`: each tensor is surrounded by guard bytes."""
        self.placed = placed
        self._bytes, self._is_guarded = area, guarded
        pairs = zip(placed, specs, strict=True)
        self._views = [{at: tensor_at(area, spec, at) for at in place.offsets} for place, spec in pairs]
        self._laid_at = [place.offsets[0] for place in placed]
        self.forget()
        self.arrange(0)

    fd: int
    size_bytes: int

    @abstractmethod
    def open_read_only(self) -> int:
        """Return a new descriptor for a runner."""

    @abstractmethod
    def restore(self) -> None:
        """Restore the memory to its state when new, also outside tensors and guards: as fast, and empty."""

    @abstractmethod
    def altered(self) -> bool:
        """Return True if another process wrote to the tensors since `fill`."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until other processes see the data written here."""

    def arrange(self, number: int) -> None:
        """Choose the arrangement of the following calls; `fill` writes the tensors that move."""
        self.arrangement = number
        self.offsets = [place.offsets[number % len(place.offsets)] for place in self.placed]
        self.tensors: Tensors = tuple(views[at] for views, at in zip(self._views, self.offsets, strict=True))

    @property
    def moving(self) -> Tensors:
        """The tensors with several places, at each of them."""
        return tuple(view for views in self._views if len(views) > 1 for view in views.values())

    def fill(self, values: Sequence[torch.Tensor]) -> None:
        """Write contents into the tensors, except those that are there already (mostly parameters)."""
        for index, (tensor, value, at) in enumerate(zip(self.tensors, values, self.offsets, strict=True)):
            before = self._laid_at[index]
            if at == before and self._laid[index] is value:
                continue
            if at != before:
                _spoil(self._views[index][before])
            tensor.copy_(value)
            self._laid[index], self._laid_at[index] = value, at

    def forget(self) -> None:
        """Make the next `fill` write everything."""
        self._laid: list[torch.Tensor | None] = [None] * len(self.placed)

    def poison(self) -> None:
        """Fill all tensors with their pattern and their surroundings with guard bytes."""
        for tensor in self.tensors:
            poison(tensor)
        for around in self._guards():
            around.fill_(GUARD_BYTE)

    def broken_guards(self) -> bool:
        """Return True if guard bytes were changed since `poison`."""
        spans = self._guards()
        return bool((torch.cat(spans) != GUARD_BYTE).any()) if spans else False

    def _guards(self) -> list[torch.Tensor]:
        spans: list[torch.Tensor] = []
        for begin, tensor in zip(self.offsets, self.tensors, strict=True) if self._is_guarded else ():
            end = begin + tensor.numel() * tensor.element_size()
            spans += [self._bytes[begin - GUARD_BYTES : begin], self._bytes[end : end + GUARD_BYTES]]
        return spans


class Area(SharedArea):
    """Memory of the host. Runners map inputs read-only."""

    def __init__(
        self,
        name: str,
        specs: Sequence[TensorSpec],
        *,
        guarded: bool,
        places: int = 1,
        memory: HostMemory | None = None,
    ) -> None:
        """Lay the tensors out from the beginning of a memory, or in one of their own."""
        placed, needed_bytes = lay_out(name, specs, guarded=guarded, places=places)
        memory = memory or HostMemory(name, needed_bytes)
        super().__init__(placed, specs, memory.bytes, guarded=guarded)
        self.fd, self.size_bytes = memory.fd, memory.size_bytes

    def open_read_only(self) -> int:
        """Return a new descriptor that cannot be mapped for writing."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def restore(self) -> None:
        """See `SharedArea`. A process with write access can split huge pages (`MADV_REMOVE`): they are collapsed."""
        if self._is_guarded:  # others are mapped read-only
            self._bytes.fill_(GUARD_BYTE)
        collapse(self.fd, self.size_bytes, is_new=False)

    def altered(self) -> bool:
        """Return False: the mapping is read-only."""
        return False

    def settle(self) -> None:
        """Do nothing: there is nothing to wait for."""


class GpuArea(SharedArea):
    """Memory of the first visible GPU.

    The driver cannot protect mapped memory from writing, so the judge checks after every call that the inputs are
    unchanged. Runners map nothing else of the judge's: expected values are in its own context.
    """

    def __init__(
        self,
        name: str,
        specs: Sequence[TensorSpec],
        *,
        guarded: bool,
        places: int = 1,
        memory: SharedMemory | None = None,
    ) -> None:
        """Lay the tensors out from the beginning of a memory, or in one of their own."""
        placed, needed_bytes = lay_out(name, specs, guarded=guarded, places=places)
        memory = memory or SharedMemory(Context(), needed_bytes)
        super().__init__(placed, specs, view_memory(memory.address, memory.size_bytes), guarded=guarded)
        self.fd, self.size_bytes = memory.fd, memory.size_bytes

    def open_read_only(self) -> int:
        """Return a new descriptor. It can be mapped for writing, too."""
        return os.dup(self.fd)

    def restore(self) -> None:
        """See `SharedArea`."""
        self._bytes.fill_(GUARD_BYTE)
        self.forget()

    def altered(self) -> bool:
        """See `SharedArea`; if so, the next call gets all data again."""
        differences = [
            (place.view(-1).view(torch.uint8) != laid.contiguous().view(-1).view(torch.uint8)).any()
            for place, laid in zip(self.tensors, self._laid, strict=True)
            if laid is not None
        ]
        found = bool(torch.stack(differences).any()) if differences else False
        if found:
            self.forget()
        return found

    def settle(self) -> None:
        """See `SharedArea`."""
        torch.cuda.synchronize()


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with the pattern of its dtype."""
    view, value = _POISON[tensor.dtype]
    tensor.view(view).fill_(value)


def is_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that still have the pattern."""
    view, value = _POISON[tensor.dtype]
    return tensor.view(view) == value


def _spoil(tensor: torch.Tensor) -> None:
    """Change some elements; integers to values that may be indices."""
    part = tensor.view(-1)[: _SPOILT_BYTES // tensor.element_size()]
    if part.is_floating_point():
        poison(part)
    else:
        part.copy_(part == 0)


def tensor_at(area: torch.Tensor, spec: TensorSpec, offset: int) -> torch.Tensor:
    """Return a tensor within an area's bytes."""
    return area[offset : offset + _size_bytes(spec)].view(DTYPES[spec.dtype]).view(spec.shape)


def tensors_in(area: torch.Tensor, specs: Sequence[TensorSpec]) -> Tensors:
    """Return the tensors within an area's bytes: without guards, each at its only place."""
    placed, _ = lay_out("", specs)
    return tuple(tensor_at(area, spec, place.offsets[0]) for place, spec in zip(placed, specs, strict=True))


def lay_out(
    name: str, specs: Sequence[TensorSpec], *, guarded: bool = False, places: int = 1
) -> tuple[list[Placed], int]:
    """Return the places of an area's tensors in each arrangement, and its size in bytes."""
    placed: list[Placed] = []
    end, is_first = 0, True
    guard_bytes = GUARD_BYTES if guarded else 0
    for spec in specs:
        begins: list[int] = []
        for _ in range(1 if spec.role == "parameter" else places):
            begins.append(-(-(end + guard_bytes) // _ALIGNMENT) * _ALIGNMENT)
            end = begins[-1] + _size_bytes(spec) + guard_bytes
        # For each tensor, one of two places: the first input's is never the first output's, others are drawn.
        crossed = [
            begins[pair[int(name == "outputs") if is_first else random.SystemRandom().randrange(2)]]
            for pair in crossings(len(begins))
        ]
        is_first = is_first and len(begins) == 1
        placed.append(_place(name, (*begins, *crossed), spec))
    return placed, -(-max(end, 1) // _ALIGNMENT) * _ALIGNMENT


def crossings(places: int) -> list[tuple[int, int]]:
    """Return the two places of each arrangement in which the places of tensors differ.

    They come after the arrangements with all tensors at their first place, at their second, and so on. Some tensors are
    at one of the two places and some at the other, which finds results that are cached by the address of a single
    tensor.
    """
    return list(itertools.permutations(range(places), 2))


def _place(area: str, offsets: tuple[int, ...], spec: TensorSpec) -> Placed:
    kind = spec.dtype if spec.dtype in _DLPACK_CODES else spec.dtype.rstrip("0123456789")
    bits = DTYPES[spec.dtype].itemsize * 8
    return Placed(area=area, offsets=offsets, shape=spec.shape, code=_DLPACK_CODES[kind], bits=bits)


def _size_bytes(spec: TensorSpec) -> int:
    return math.prod(spec.shape) * DTYPES[spec.dtype].itemsize


def total_bytes(specs: Sequence[TensorSpec]) -> int:
    """Return the total size of these tensors in bytes."""
    return sum(_size_bytes(spec) for spec in specs)
