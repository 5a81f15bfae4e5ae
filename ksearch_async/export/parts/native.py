"""Part of exported modules: calls a shared library, by its plain C entry point or by tvm-ffi's convention."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ksearch_async.export.parts.facts import ARGUMENTS, ENTRY_POINT, OUTPUTS, SOURCES, TITLE


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
        return lambda tensors, _stream: entry(*tensors)
    try:
        function = getattr(ctypes.CDLL(str(product)), ENTRY_POINT)
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"kernel {TITLE!r} cannot be loaded: {error}") from error
    dimensions = [(ctypes.c_int64 * (len(shape) + 1))(*shape) for _, shape, _ in (*ARGUMENTS, *OUTPUTS)]
    shapes = (ctypes.c_void_p * len(dimensions))(*map(ctypes.addressof, dimensions))

    def call(tensors: Sequence[torch.Tensor], stream: int | None) -> None:
        inputs, outputs = (
            (ctypes.c_void_p * len(some))(*(tensor.data_ptr() for tensor in some))
            for some in (tensors[: len(ARGUMENTS)], tensors[len(ARGUMENTS) :])
        )
        _ = dimensions  # what `shapes` points to
        queue = () if stream is None else (ctypes.c_void_p(stream),)
        status = function(inputs, outputs, shapes, *queue)
        if status != 0:
            raise RuntimeError(f"kernel {TITLE!r} failed with status {status}")

    return call
