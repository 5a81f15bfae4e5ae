"""Tensors that were recorded with workloads: read from safetensors files, and written as a module that travels.

The files are read by the package `safetensors` (the extra `flashinfer`), without torch. Recorded are mostly integers of
some kilobytes that say where things lie; a task that would carry more than a few megabytes of them is refused.

- `recorded_inputs(root, definition, workloads) -> Recordings`, raises ConfigError
"""

from __future__ import annotations

import base64
import importlib
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evaluators.tasks.flashinfer.constraints import KnownTensor, Unknown, holds
from evaluators.tasks.flashinfer.schema import Definition, SafetensorsInput, Workload
from evaluators.tasks.flashinfer.trace_set import known_of
from messages.base import ConfigError

_MOST_BYTES = 4 << 20
_LARGEST_FILE = 2 << 30
_POINTER = b"version https://git-lfs"
_DTYPES = {
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "BOOL": ("bool", 1),
}


class _Tensor(msgspec.Struct, frozen=True, kw_only=True):
    dtype: str
    shape: tuple[int, ...]
    content: bytes
    item_bytes: int


class Recordings(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded for a task's workloads."""

    names: frozenset[str] = frozenset()
    """Inputs that come from it; empty: nothing was found, and they are made up."""
    module: str = ""
    """Text of the module that holds them."""
    missing: tuple[str, ...] = ()
    """Inputs that were recorded, by the workloads, in files that are not here."""


def recorded_inputs(root: Path, definition: Definition, workloads: Sequence[Workload]) -> Recordings:
    """Return what was recorded for some workloads, or nothing where none of their files is there.

    Raises:
        ConfigError: some of the files are there and others not, one cannot be read, or its tensors do not fit.
    """
    wanted = [
        (workload, name, given)
        for workload in workloads
        for name, given in workload.inputs.items()
        if isinstance(given, SafetensorsInput)
    ]
    names = tuple(dict.fromkeys(name for _, name, _ in wanted))
    absent = [given.path for _, _, given in wanted if not _is_there(root / given.path)]
    if len(absent) == len(wanted):
        return Recordings(missing=names)
    if absent:
        raise ConfigError(
            f"{len(absent)} of {len(wanted)} recorded tensors of definition {definition.name!r} are not there, the "
            f"first in {str(root / absent[0])!r}; get them (`git lfs pull`), name other workloads, or remove the rest"
        )
    opened: dict[str, dict[str, _Tensor]] = {}
    entries: list[str] = []
    for workload, name, given in wanted:
        tensors = opened.setdefault(given.path, {}) or _read(root / given.path)
        opened[given.path] = tensors
        tensor = _fitting(definition, workload, name, given, tensors)
        packed = base64.b85encode(zlib.compress(tensor.content, 9)).decode("ascii")
        entries.append(f"    ({workload.uuid!r}, {name!r}): ({tensor.dtype!r}, {tensor.shape!r}, {packed!r}),\n")
    module = "".join(('"""Tensors that were recorded: dtype, shape, bytes."""\n\nTENSORS = {\n', *entries, "}\n"))
    if len(module) > _MOST_BYTES:
        raise ConfigError(
            f"the recorded tensors of {len(workloads)} workloads of definition {definition.name!r} take "
            f"{len(module) >> 20} MiB, which is more than a task carries; name fewer workloads"
        )
    for workload in workloads:
        _check_constraints(definition, workload, opened)
    return Recordings(names=frozenset(names), module=module)


def _is_there(path: Path) -> bool:
    """Say whether a file is there with its content; what git-lfs leaves in its place does not count."""
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) != _POINTER
    except OSError:
        return False


def _read(path: Path) -> dict[str, _Tensor]:
    try:
        safetensors = importlib.import_module("safetensors")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{str(path)!r} is read by the package safetensors, which is not installed: "
            "`pip install 'ksearch-async[flashinfer]'`"
        ) from error
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigError(f"{str(path)!r} is larger than {_LARGEST_FILE >> 30} GiB")
        found = safetensors.deserialize(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except safetensors.SafetensorError as error:
        raise ConfigError(f"{str(path)!r} is no safetensors file: {error}") from error
    tensors: dict[str, _Tensor] = {}
    for key, value in found:
        dtype, item_bytes = _DTYPES.get(value["dtype"], (value["dtype"], 1))
        tensors[key] = _Tensor(
            dtype=dtype, shape=tuple(value["shape"]), content=bytes(value["data"]), item_bytes=item_bytes
        )
    return tensors


def _fitting(
    definition: Definition, workload: Workload, name: str, given: SafetensorsInput, tensors: dict[str, _Tensor]
) -> _Tensor:
    """Return a tensor that is of the definition's dtype and the workload's shape.

    Raises:
        ConfigError: it is not there, or of another.
    """
    where = f"workload {workload.uuid!r} of definition {definition.name!r}"
    tensor = tensors.get(given.tensor_key)
    if tensor is None:
        raise ConfigError(f"{where}: {given.path!r} holds no tensor {given.tensor_key!r}")
    known = known_of(definition, workload)[name]
    shape = known.shape if isinstance(known, KnownTensor) else ()
    if (tensor.dtype, tensor.shape) != (definition.inputs[name].dtype, shape):
        raise ConfigError(
            f"{where}: {name!r} must be {definition.inputs[name].dtype} {shape}, "
            f"and {given.path!r} has {tensor.dtype} {tensor.shape}"
        )
    return tensor


def _check_constraints(definition: Definition, workload: Workload, opened: dict[str, dict[str, _Tensor]]) -> None:
    """See that the constraints hold for what was recorded.

    Raises:
        ConfigError: one does not.
    """
    known = known_of(definition, workload)
    for name, given in workload.inputs.items():
        if isinstance(given, SafetensorsInput):
            tensor = opened[given.path][given.tensor_key]
            if tensor.dtype in {"int32", "int64"} and len(tensor.shape) == 1:
                known[name] = KnownTensor(shape=tensor.shape, values=_integers(tensor))
    for constraint in definition.constraints:
        try:
            is_kept = holds(constraint, known)
        except Unknown:
            continue
        if not is_kept:
            raise ConfigError(
                f"workload {workload.uuid!r} of definition {definition.name!r} breaks the constraint {constraint!r} "
                "with the tensors that were recorded"
            )


def _integers(tensor: _Tensor) -> tuple[int, ...]:
    return tuple(memoryview(tensor.content).cast("i" if tensor.item_bytes == 4 else "q"))
