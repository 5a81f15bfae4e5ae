"""Part of exported modules: builds the kernel's shared library once, and calls it.

The cache is a folder of the user's own: `$KSEARCH_EXPORT_CACHE`, else `ksearch-exported` in `$XDG_CACHE_HOME` or
`~/.cache`. A file's name is a hash of the sources and of what they are built with. It appears whole, by a rename, with
a digest beside it, and one process builds while others wait. The library is called by its plain C entry point or by
tvm-ffi's convention.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from ksearch_async.export.parts.calling import with_numbers
from ksearch_async.export.parts.facts import ARGUMENTS, ENTRY_POINT, NUMBERS, OUTPUTS, SOURCES, TITLE


def built(compiler: str, flags: Sequence[str]) -> Path:
    """Return the shared library, built now if need be.

    Args:
        compiler: its path.
        flags: all but the output's name.

    Raises:
        RuntimeError: it does not build, or the cache cannot be used.
    """
    parts = [platform.machine(), *flags, *(part for file in SOURCES.items() for part in file)]
    name = hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16).hexdigest()
    product = _cache_folder() / f"{name}.so"
    if _is_whole(product):
        return product
    with product.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(product):
            _build(compiler, flags, product)
    return product


def find_program(names: Sequence[str], hint: str) -> str:
    """Return the path of the first program that is there.

    Raises:
        RuntimeError: none is.
    """
    for name in names:
        path = shutil.which(name)
        if path is not None:
            return path
    raise RuntimeError(f"kernel {TITLE!r} has to be built, and none of {', '.join(names)} is there: {hint}")


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("KSEARCH_EXPORT_CACHE") or Path(base) / "ksearch-exported")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise RuntimeError(f"cannot keep what is built in {folder}: {error}; set KSEARCH_EXPORT_CACHE") from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise RuntimeError(f"others may write to {folder}, so nothing is loaded from it; set KSEARCH_EXPORT_CACHE")
    return folder


def _is_whole(product: Path) -> bool:
    try:
        return product.with_suffix(".sum").read_text() == _digest(product)
    except OSError:
        return False


def _digest(product: Path) -> str:
    return hashlib.blake2b(product.read_bytes(), digest_size=16).hexdigest()


def _build(compiler: str, flags: Sequence[str], product: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".building-", dir=product.parent) as folder:
        for path, text in SOURCES.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        command = [compiler, *flags, "-o", product.name]
        done = subprocess.run(  # noqa: S603 - the user's own compiler
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"kernel {TITLE!r} does not build here:\n{' '.join(command)}\n{done.stderr[:4000]}")
        fresh = Path(folder) / product.name
        with fresh.open("rb") as stream:
            os.fsync(stream.fileno())
        digest = Path(folder) / "digest"
        digest.write_text(_digest(fresh))
        fresh.replace(product)
        digest.replace(product.with_suffix(".sum"))


def wants_tvm_ffi() -> bool:
    """Say whether the kernel is written for tvm-ffi."""
    return any("tvm/ffi/" in text or "dlpack/" in text for text in SOURCES.values())


def tvm_ffi_flags() -> tuple[str, ...]:
    """Return the compiler's arguments for tvm-ffi, for kernels that are written for it.

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
        _ = dimensions  # the arrays behind `shapes`
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
