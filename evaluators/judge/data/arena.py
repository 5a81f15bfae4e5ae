"""Memory that the judge shares with the sides: one area of inputs, one of outputs, one for the baseline's results.

Each is a memfd. A runner gets the inputs through a descriptor that was opened for reading only, so a write to them
crashes it. Around every output lie guard bytes, and the output itself is filled with a pattern before each call.

Inputs and outputs have several places each, in memory of their own; parameters have one. An arrangement says at which
of its places each tensor lies in a call. The other places hold older contents: a candidate that keeps an address from
an earlier call reads old inputs, or leaves its output unwritten.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import mmap
import os
import random
from collections.abc import Callable, Sequence

import msgspec
import torch

from evaluators.judge.reference.problem import DTYPES, Tensors
from evaluators.runners.base import collapse, rounded
from messages.tasks import TensorSpec

GUARD_BYTES = 4096
_ALIGNMENT = 4096
GUARD_BYTE = 0xA5
PLACES = 3
"""Of each input and output, where memory allows."""
_SPOILT_BYTES = 64 << 10
"""Overwritten at the beginning of a place that a tensor leaves: some inputs are the same in every call."""

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
    """Places of a tensor in its area; part of a `RunnerSpec`."""

    area: str
    """`inputs` or `outputs`."""
    offsets: tuple[int, ...]
    """In each arrangement; of a parameter the only one."""
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


class Arranged:
    """The tensors of an area, at their places of the current arrangement."""

    def __init__(self, placed: Sequence[Placed], view: Callable[[int, int], torch.Tensor]) -> None:
        self.placed = list(placed)
        self._views = [{at: view(index, at) for at in place.offsets} for index, place in enumerate(placed)]
        self._laid: list[torch.Tensor | None] = [None] * len(self.placed)
        self._laid_at = [place.offsets[0] for place in placed]
        self.arrange(0)

    def arrange(self, number: int) -> None:
        """Choose the arrangement of the calls that follow; `fill` writes what it moves."""
        self.arrangement = number
        self.offsets = [place.offsets[number % len(place.offsets)] for place in self.placed]
        self.tensors: Tensors = tuple(views[at] for views, at in zip(self._views, self.offsets, strict=True))

    @property
    def moving(self) -> Tensors:
        """Return the tensors that have several places, at each of them."""
        return tuple(view for views in self._views if len(views) > 1 for view in views.values())

    def fill(self, values: Sequence[torch.Tensor]) -> None:
        """Write contents into the tensors. What lies there already (parameters, mostly) is not copied again."""
        for index, (tensor, value, at) in enumerate(zip(self.tensors, values, self.offsets, strict=True)):
            before = self._laid_at[index]
            if at == before and self._laid[index] is value:
                continue
            if at != before:
                _spoil(self._views[index][before])
            tensor.copy_(value)
            self._laid[index], self._laid_at[index] = value, at

    def forget(self) -> None:
        """Forget what lies there: `fill` writes all of it."""
        self._laid = [None] * len(self._laid)

    def poison(self) -> None:
        """Fill all tensors with their pattern and the bytes around them with the guard's."""
        for tensor in self.tensors:
            poison(tensor)
        for around in self._guards():
            around.fill_(GUARD_BYTE)

    def _guards(self) -> list[torch.Tensor]:
        return []


class Area(Arranged):
    """Memory of the host with tensors in it."""

    def __init__(
        self,
        name: str,
        specs: Sequence[TensorSpec],
        *,
        guarded: bool,
        places: int = 1,
        memory: HostMemory | None = None,
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
        memory = memory or HostMemory(name, needed_bytes)
        self.fd, self.size_bytes = memory.fd, memory.size_bytes
        super().__init__(placed, lambda index, at: view_tensor(memory.mapped, specs[index], at))
        self._bytes = torch.frombuffer(memory.mapped, dtype=torch.uint8)
        self._restore = memory.restore

    def open_read_only(self) -> int:
        """Return a new descriptor that cannot be mapped for writing."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def restore(self) -> None:
        """Have the memory be as when it was new, whatever a candidate did to it: as fast, and nothing of it left there.

        Beside tensors and guards, too: an area is larger than what lies in it.
        """
        if self._guard:  # others are mapped read-only
            self._bytes.fill_(GUARD_BYTE)
        self._restore()

    def settle(self) -> None:
        """Wait until what was written here can be seen by others: at once."""

    def altered(self) -> bool:
        """Say whether somebody else wrote to the tensors since `fill`: nobody can, they map it read-only."""
        return False

    def broken_guards(self) -> bool:
        """Say whether anything was written around the tensors since `poison`."""
        return any(bool((around != GUARD_BYTE).any()) for around in self._guards())

    def _guards(self) -> list[torch.Tensor]:
        return guards_of(self._bytes, self.offsets, self.tensors) if self._guard else []


def poison(tensor: torch.Tensor) -> None:
    """Fill a tensor with the pattern of its dtype."""
    view, value = _POISON[tensor.dtype]
    tensor.view(view).fill_(value)


def is_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask of the elements that still hold the pattern."""
    view, value = _POISON[tensor.dtype]
    return tensor.view(view) == value


def _spoil(tensor: torch.Tensor) -> None:
    """Have some elements be others than they were; of integers such as may be indices."""
    part = tensor.view(-1)[: _SPOILT_BYTES // tensor.element_size()]
    if part.is_floating_point():
        poison(part)
    else:
        part.copy_(part == 0)


def view_tensor(memory: mmap.mmap | ctypes.Array[ctypes.c_char], spec: TensorSpec, offset: int) -> torch.Tensor:
    """Return a tensor over mapped memory."""
    flat = torch.frombuffer(memory, dtype=DTYPES[spec.dtype], count=_count(spec.shape), offset=offset)
    return flat.view(spec.shape)


def lay_out(name: str, specs: Sequence[TensorSpec], guard_bytes: int, places: int = 1) -> tuple[list[Placed], int]:
    """Say where the tensors of an area lie in each arrangement, and how large it is."""
    placed: list[Placed] = []
    end = 0
    is_first = True
    for spec in specs:
        begins: list[int] = []
        for _ in range(1 if spec.role == "parameter" else places):
            begins.append(-(-(end + guard_bytes) // _ALIGNMENT) * _ALIGNMENT)
            end = begins[-1] + _size_bytes(spec) + guard_bytes
        crossed = [begins[pair[_side(name, is_first)]] for pair in crossings(len(begins))]
        is_first = is_first and len(begins) == 1
        placed.append(_place(name, (*begins, *crossed), spec))
    return placed, -(-max(end, 1) // _ALIGNMENT) * _ALIGNMENT


def crossings(places: int) -> list[tuple[int, int]]:
    """Return which two places tensors have in each arrangement in which their places differ.

    These arrangements come after those in which all tensors are at their first place, or all at their second, and so
    on. Some tensors are at the one of the two and some at the other. After a call with all tensors at the one and a
    call with all at the other, such a call finds out what is kept by the address of any single tensor.
    """
    return list(itertools.permutations(range(places), 2))


def _side(area: str, is_first: bool) -> int:
    """Say at which of two places a tensor is: the first input never where the first output is, others by chance."""
    return int(area == "outputs") if is_first else random.SystemRandom().randrange(2)


def guards_of(area: torch.Tensor, offsets: Sequence[int], tensors: Tensors) -> list[torch.Tensor]:
    """Return the bytes before and behind every tensor of an area."""
    spans: list[torch.Tensor] = []
    for begin, tensor in zip(offsets, tensors, strict=True):
        end = begin + tensor.numel() * tensor.element_size()
        spans.append(area[begin - GUARD_BYTES : begin])
        spans.append(area[end : end + GUARD_BYTES])
    return spans


def _place(area: str, offsets: tuple[int, ...], spec: TensorSpec) -> Placed:
    kind = spec.dtype if spec.dtype in _DLPACK_CODES else spec.dtype.rstrip("0123456789")
    return Placed(
        area=area,
        offsets=offsets,
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
