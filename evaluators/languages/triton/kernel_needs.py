"""Reports on compiled kernels: their needs of a GPU, or the place of an error in their source."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from triton.runtime.jit import JITFunction

from evaluators.runners.program import tell_raised

_USED = re.compile(r"Used (\d+) registers")
_AT = re.compile(r"at (\d+):\d+:")
_SPILLS = re.compile(r"(\d+) bytes spill stores")


class BlockLimits(NamedTuple):
    """Limits of a block of threads on a GPU."""

    capability: int
    """90 for `sm_90`."""
    shared_bytes: int


def needs_of(name: str, compiled: object, printed: str, limits: BlockLimits) -> dict[str, object]:
    """Return what a compiled kernel needs: the fields of `CompiledKernel` in `ahead.py`.

    Args:
        name: of the kernel.
        compiled: what Triton's compiler returned.
        printed: what ptxas said meanwhile.
        limits: of the GPU; a kernel that needs more cannot be loaded there, and that is its error.
    """
    metadata = compiled.metadata  # type: ignore[attr-defined]
    return {
        "name": name,
        "error": _exceeded(metadata.shared, limits),
        "registers": _first_number(_USED, printed),
        "spilled_bytes": _first_number(_SPILLS, printed),
        "shared_bytes": metadata.shared,
        "warps": metadata.num_warps,
        "stages": metadata.num_stages,
    }


def tell_failure(kernel: JITFunction[object], error: Exception, folder: str) -> str:
    """Return what the compiler raised, behind the line of the candidate's file that it means."""
    return _tell_place(kernel, error, folder) + tell_raised(error, folder)


def check_places(args: Sequence[object], options: Mapping[str, object]) -> None:
    """Refuse a tensor that a kernel cannot reach.

    Raises:
        ValueError: there is one, in Triton's own words.
    """
    for place, argument in enumerate((*args, *options.values())):
        if isinstance(argument, torch.Tensor) and not argument.is_cuda:
            raise ValueError(f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)")


def _exceeded(shared_bytes: int, limits: BlockLimits) -> str:
    if shared_bytes <= limits.shared_bytes:
        return ""
    most = f"a block of sm_{limits.capability} may have {limits.shared_bytes}"
    return f"needs {shared_bytes} bytes of shared memory; {most}"


def _tell_place(kernel: JITFunction[object], error: Exception, folder: str) -> str:
    """Return the line of the file that the compiler means: it counts from the kernel's `def`, and names no file."""
    found = _AT.match(str(error))
    if found is None:
        return ""
    lines, first = inspect.getsourcelines(kernel.fn)
    head = next((number for number, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    number = head + int(found[1]) - 1
    text = lines[number].strip() if number < len(lines) else ""
    file = kernel.fn.__code__.co_filename.removeprefix(folder + os.sep)
    return f"{file}:{first + number} in {kernel.fn.__name__}: {text}\n"


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else int(match[1])
