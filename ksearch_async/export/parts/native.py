"""Part of exported modules: calls a shared library, by its plain C entry point or by tvm-ffi's convention."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ksearch_async.export.parts.calling import with_numbers
from ksearch_async.export.parts.facts import ARGUMENTS, ENTRY_POINT, NUMBERS, OUTPUTS, SOURCES, TITLE


def wants_tvm_ffi() -> bool:
    """Say whether the kernel is written for tvm-ffi."""
    return any("tvm/ffi/" in text or "dlpack/" in text for text in SOURCES.values())


def tvm_ffi_flags() -> tuple[str, ...]:
    """Return what a compiler is told of tvm-ffi, for kernels that are written for it.

    Raises:
        RuntimeError: it is not installed.
    """
    if not wants_tvm_ffi():
        return ()
    try:
        import tvm_ffi  # noqa: PLC0415 - few kernels need it
    except ImportError as error:
        raise RuntimeError(f"kernel {TITLE!r} needs tvm-ffi: pip install apache-tvm-ffi") from error
    folder = Path(tvm_ffi.__file__).parent
    return ("-isystem", str(folder / "include"), f"-L{folder / 'lib'}", "-ltvm_ffi")


def units(suffixes: tuple[str, ...]) -> list[str]:
    """Return the files to compile; the others are headers."""
    return [path for path in SOURCES if path.endswith(suffixes)]


def load_library(product: Path) -> Callable[[Sequence[torch.Tensor], int | None], None]:
    """Return the kernel as a function of all tensors, outputs last, and of a stream (null: there is none).

    Raises:
        RuntimeError: it cannot be loaded; or, from the function, the kernel failed.
    """
    if wants_tvm_ffi():
        import tvm_ffi  # noqa: PLC0415

        entry = tvm_ffi.load_module(str(product))[ENTRY_POINT]
        return lambda tensors, _stream: entry(*with_numbers(tensors))
    try:
        function = getattr(ctypes.CDLL(str(product)), ENTRY_POINT)
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"kernel {TITLE!r} cannot be loaded: {error}") from error
    dimensions = [(ctypes.c_int64 * (len(shape) + 1))(*shape) for _, shape, _ in (*ARGUMENTS, *OUTPUTS)]
    numbers = [(place, _in_c(number)) for _, place, number in NUMBERS]
    for place, _ in numbers:
        dimensions.insert(place, (ctypes.c_int64 * 1)())
    shapes = (ctypes.c_void_p * len(dimensions))(*map(ctypes.addressof, dimensions))

    def call(tensors: Sequence[torch.Tensor], stream: int | None) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors[: len(ARGUMENTS)]]
        for place, number in numbers:
            addresses.insert(place, ctypes.addressof(number))
        results = [tensor.data_ptr() for tensor in tensors[len(ARGUMENTS) :]]
        inputs, outputs = ((ctypes.c_void_p * len(some))(*some) for some in (addresses, results))
        _ = dimensions  # what `shapes` points to
        queue = () if stream is None else (ctypes.c_void_p(stream),)
        status = function(inputs, outputs, shapes, *queue)
        if status != 0:
            raise RuntimeError(f"kernel {TITLE!r} failed with status {status}")

    return call


def _in_c(number: float) -> ctypes.c_bool | ctypes.c_int64 | ctypes.c_double:
    """Return a number as a function in C reads it."""
    if isinstance(number, bool):
        return ctypes.c_bool(number)
    return ctypes.c_int64(number) if isinstance(number, int) else ctypes.c_double(number)
