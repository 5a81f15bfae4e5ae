"""Has one GPU compute something in a process of its own: a stdlib-only script for `python -I -S -c`, and who asks it.

- `ails(device: str) -> str`: empty if the GPU works

The script's argument is the GPU's number as the driver counts (CUDA_VISIBLE_DEVICES counts). It takes the GPU, fills
some memory, copies it, and compares. A GPU that fell off its bus fails here, as does one that stopped work on memory
errors until its reset; a candidate that broke its own context does not.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

_LIBRARY = "libcuda.so.1"
_BYTES = 1 << 20
_PATTERN = 0x5A
_TIMEOUT_S = 60.0
_FAILED = 6


def ails(device: str) -> str:
    """Return what is wrong with a GPU; empty if it works. Blocks for about a second.

    Args:
        device: `cuda:0`, `cuda:1`, ….
    """
    index = device.partition(":")[2] or "0"
    try:
        done = subprocess.run(  # noqa: S603 - our own script
            (sys.executable, "-I", "-S", str(Path(__file__)), index),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=dict(os.environ),
        )
    except subprocess.TimeoutExpired:
        return f"a copy of a mebibyte did not end within {_TIMEOUT_S:g} s"
    except OSError as error:
        return f"it cannot be asked: {error}"
    if done.returncode == 0:
        return ""
    return " ".join(done.stderr.split())[-300:] or f"the probe ended with {done.returncode}"


class _FailedError(Exception):
    """The driver refused, or the GPU computed something else."""


def _call(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = int(library[name](*arguments))
    if code:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        raise _FailedError(f"{name}: {(text.value or b'unknown').decode()} ({code})")


def _probe(index: int) -> None:
    """Use the GPU.

    Raises:
        OSError: there is no driver.
        _FailedError: it does not work.
    """
    library = ctypes.CDLL(_LIBRARY)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    one, other = ctypes.c_ulonglong(), ctypes.c_ulonglong()
    _call(library, "cuInit", 0)
    _call(library, "cuDeviceGet", ctypes.byref(device), index)
    _call(library, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(library, "cuCtxSetCurrent", context)
    size = ctypes.c_size_t(_BYTES)
    for address in (one, other):
        _call(library, "cuMemAlloc_v2", ctypes.byref(address), size)
    _call(library, "cuMemsetD8_v2", one, ctypes.c_ubyte(_PATTERN), size)
    _call(library, "cuMemcpyDtoD_v2", other, one, size)
    found = (ctypes.c_ubyte * _BYTES)()
    _call(library, "cuMemcpyDtoH_v2", found, other, size)
    _call(library, "cuCtxSynchronize")
    if bytes(found) != bytes([_PATTERN]) * _BYTES:
        raise _FailedError("a copy in its memory is not what was copied")


def main() -> int:
    """Use the GPU that the first argument numbers."""
    try:
        _probe(int(sys.argv[1]))
    except (OSError, _FailedError) as error:
        sys.stderr.write(f"{error}\n")
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
