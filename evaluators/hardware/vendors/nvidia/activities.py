"""The GPU activity of a process, as CUPTI records it: each kernel, copy and fill, with its times. Stdlib only.

- `find_cupti() -> str`: the library's path, empty if there is none
- `Recorder(library: str)`: before the GPU is used; `begin()`, `end() -> list[Activity]`

CUPTI's activity interface needs no rights (reading counters does). Records are read at their documented offsets, which
new versions of a record only add to (CUPTI user guide, `CUpti_ActivityKernel9`, `CUpti_ActivityMemcpy6`).
"""

from __future__ import annotations

import ctypes
import glob
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

_COPY, _FILL, _KERNEL = 1, 2, 10
"""Kinds: CUPTI_ACTIVITY_KIND_MEMCPY, _MEMSET, _CONCURRENT_KERNEL."""
_BUFFER_BYTES = 1 << 20
_ALIGNMENT = 8
_FORCED = 1
_NAME_CHARACTERS = 300
_PLACES = (
    "nvidia/cu*/lib/libcupti.so.*",
    "nvidia/cuda_cupti/lib/libcupti.so.*",
    "torch/lib/libcupti*.so.*",
)
"""Paths below the folders of installed packages; torch includes one."""
_TOOLKIT = (
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.*",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so.*",
    "/usr/lib/x86_64-linux-gnu/libcupti.so.*",
)


_Number: TypeAlias = ctypes.c_uint16 | ctypes.c_int32 | ctypes.c_uint32 | ctypes.c_uint64


class Activity(NamedTuple):
    """One activity of the GPU."""

    name: str
    """A kernel's mangled name; `(copy)` and `(fill)`."""
    told: str
    """The name as its author wrote it."""
    begun_ns: int
    ended_ns: int
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    registers: int = 0
    """Per thread."""
    shared_bytes: int = 0
    """Per block, static and dynamic."""
    local_bytes: int = 0
    """Per thread: registers that were spilled, and arrays."""


class RecorderError(Exception):
    """CUPTI does not exist, or does not record."""


def find_cupti(folders: Sequence[str] = ()) -> str:
    """Return the path of CUPTI's library; empty if there is none.

    Args:
        folders: folders of installed packages; by default those of this interpreter.
    """
    below = [os.path.join(folder, place) for folder in folders or sys.path for place in _PLACES]  # noqa: PTH118
    found = (path for pattern in (*below, *_TOOLKIT) for path in sorted(glob.glob(pattern)))  # noqa: PTH207
    return next(found, "")


class Recorder:
    """Records between `begin` and `end`. One per process."""

    def __init__(self, library: str) -> None:
        """Load CUPTI and register with it.

        Raises:
            RecorderError: it does not work here.
        """
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise RecorderError(str(error)) from error
        self._readable = _readable()
        self._is_on = False
        self._begun_ns = 0
        self._found: list[Activity] = []
        self._buffers: dict[int, ctypes.Array[ctypes.c_char]] = {}
        lend = ctypes.CFUNCTYPE(
            None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
        )
        take = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
        )
        self._callbacks = lend(self._lend), take(self._take)
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)

    def begin(self) -> None:
        """Record all launches from now on, for `end`. Fast, except the first time.

        Raises:
            RecorderError: it cannot be recorded.
        """
        if not self._is_on:
            for kind in (_COPY, _FILL, _KERNEL):
                self._call("cuptiActivityEnable", kind)
            self._is_on = True
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        self._begun_ns = now.value

    def end(self) -> list[Activity]:
        """Return the activities since `begin`, ordered by their beginnings. All must have been waited for.

        Raises:
            RecorderError: they cannot be read.
        """
        self._call("cuptiActivityFlushAll", _FORCED)
        found = [one for one in self._found if one.begun_ns >= self._begun_ns]
        self._found.clear()
        return sorted(found, key=lambda one: one.begun_ns)

    def _call(self, name: str, *arguments: object) -> None:
        code = int(self._library[name](*arguments))
        if code:
            raise RecorderError(f"{name} fails with error {code}")

    def _lend(self, buffer: object, size: object, most: object) -> None:
        """Give CUPTI a buffer to write to."""
        memory = ctypes.create_string_buffer(_BUFFER_BYTES + _ALIGNMENT)
        address = -(-ctypes.addressof(memory) // _ALIGNMENT) * _ALIGNMENT
        self._buffers[address] = memory
        buffer[0], size[0], most[0] = address, _BUFFER_BYTES, 0  # type: ignore[index]

    def _take(self, _context: object, _stream: int, buffer: int, _size: int, filled: int) -> None:
        """Read what CUPTI wrote."""
        record = ctypes.c_void_p()
        while self._library.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), filled, ctypes.byref(record)) == 0:
            if (found := _read(record.value or 0, self._readable)) is not None:
                self._found.append(found)
        self._buffers.pop(buffer, None)


def _readable() -> Callable[[bytes], str]:
    """Return a function that demangles names; without a library for that, it returns them unchanged."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return lambda name: name.decode(errors="replace")
    demangle = library["__cxa_demangle"]
    demangle.restype = ctypes.c_char_p

    def readable(name: bytes) -> str:
        status = ctypes.c_int()
        return (demangle(name, None, None, ctypes.byref(status)) or name).decode(errors="replace")

    return readable


def _read(address: int, readable: Callable[[bytes], str]) -> Activity | None:
    """Return the activity in a record; None if it is of another kind."""
    kind = _number(address, 0, ctypes.c_uint32)
    begun, ended = _number(address, 16, ctypes.c_uint64), _number(address, 24, ctypes.c_uint64)
    if kind in {_COPY, _FILL}:
        name = "(copy)" if kind == _COPY else "(fill)"
        return Activity(name, name, begun, ended)
    if kind != _KERNEL:
        return None
    mangled = ctypes.c_char_p.from_address(address + 104).value or b""
    grid_and_block = [_number(address, 52 + 4 * place, ctypes.c_int32) for place in range(6)]
    return Activity(
        mangled.decode(errors="replace"),
        readable(mangled)[:_NAME_CHARACTERS],
        begun,
        ended,
        (grid_and_block[0], grid_and_block[1], grid_and_block[2]),
        (grid_and_block[3], grid_and_block[4], grid_and_block[5]),
        _number(address, 6, ctypes.c_uint16),
        _number(address, 76, ctypes.c_int32) + _number(address, 80, ctypes.c_int32),
        _number(address, 84, ctypes.c_uint32),
    )


def _number(address: int, offset: int, kind: type[_Number]) -> int:
    return int(kind.from_address(address + offset).value)
