"""Calls a candidate that is a shared library. Stdlib only: a separate, disposable process per candidate.

Its argument is a JSON object (`RunnerSpec` in `evaluators/judge/candidate/runner.py`). The calling contracts
are those of `evaluators/languages/cpp/contract.py`: raw `extern "C"`, and tvm-ffi's C ABI (github.com/apache/tvm-ffi,
include/tvm/ffi/c_api.h), told apart by the exported symbol.
"""

# ruff: noqa: PTH123 - pathlib would add a third to the start-up of every evaluation

from __future__ import annotations

import ctypes
import gc
import json
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any

from evaluators.process.sandbox.confine import confine
from evaluators.process.sandbox.profiles import run
from evaluators.runners.base import (
    LOADED,
    NO_ENTRY_POINT,
    NOT_LOADED,
    Called,
    arranged,
    bind_to_judge,
    map_areas,
    print_by_lines,
    serve,
)
from evaluators.runners.structure import numbers_in

_INT_ARGUMENT, _BOOL_ARGUMENT, _FLOAT_ARGUMENT = 1, 2, 3  # kTVMFFIInt, kTVMFFIBool, kTVMFFIFloat
_TENSOR_ARGUMENT = 7  # kTVMFFIDLTensorPtr
CPU, CUDA = 1, 2  # kDLCPU, kDLCUDA
_OBJECT_HEADER_BYTES = 24  # sizeof(TVMFFIObject)


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Argument(ctypes.Structure):
    """TVMFFIAny."""

    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_void_p))


class _Bytes(ctypes.Structure):
    """TVMFFIByteArray."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Placed:
    """A tensor at one of its places. Keeps what it points to alive."""

    def __init__(self, known: Mapping[str, Any], address: int, device: int) -> None:
        shape: list[int] = known["shape"]
        strides = [1] * len(shape)
        for index in range(len(shape) - 2, -1, -1):
            strides[index] = strides[index + 1] * shape[index + 1]
        # One element more than there are dimensions: a scalar's arrays may not be empty.
        kind, pointer = ctypes.c_int64 * (len(shape) + 1), ctypes.POINTER(ctypes.c_int64)
        self.area, self.address = str(known["area"]), address
        self.shape, self._strides = kind(*shape), kind(*strides)
        dimensions, steps = ctypes.cast(self.shape, pointer), ctypes.cast(self._strides, pointer)
        self.tensor = _Tensor(address, device, 0, len(shape), known["code"], known["bits"], 1, dimensions, steps, 0)


def arguments_of(
    placed: Sequence[Mapping[str, Any]],
    bases: Mapping[str, int],
    call: Mapping[str, Any] | None = None,
    *,
    device: int = CPU,
    stream: int | None = None,
) -> list[Arguments]:
    """Return the arguments of a workload's calls in each arrangement."""

    def view(index: int, offset: int) -> _Placed:
        return _Placed(placed[index], bases[placed[index]["area"]] + offset, device)

    return [Arguments(tensors, call, stream) for tensors in arranged(placed, view)]


class Arguments:
    """The tensors of a workload in one arrangement, in both contracts' form. Keeps what they point to alive."""

    def __init__(self, tensors: list[_Placed], call: Mapping[str, Any] | None, stream: int | None) -> None:
        self.tensors, self.stream = tensors, stream
        self.shapes: list[ctypes.Array[ctypes.c_int64]] = [placed.shape for placed in tensors]
        addresses: dict[str, list[int]] = {"inputs": [], "outputs": []}
        for placed in tensors:
            addresses[placed.area].append(placed.address)
        packed = [_Argument(_TENSOR_ARGUMENT, 0, ctypes.addressof(placed.tensor)) for placed in tensors]
        self.numbers: list[ctypes.c_int64 | ctypes.c_double | ctypes.c_bool] = []
        for place, value in numbers_in(call["arguments"]) if call else []:
            kind, number = _number(value)
            self.numbers.append(number)
            addresses["inputs"].insert(place, ctypes.addressof(number))
            self.shapes.insert(place, (ctypes.c_int64 * 1)())
            packed.insert(place, _Argument(kind, 0, _as_bits(value)))
        inputs, outputs = addresses["inputs"], addresses["outputs"]
        self.inputs = (ctypes.c_void_p * len(inputs))(*inputs)
        self.outputs = (ctypes.c_void_p * len(outputs))(*outputs)
        pointer = ctypes.POINTER(ctypes.c_int64)
        pointers = [ctypes.cast(shape, pointer) for shape in self.shapes]
        self.shape_pointers = (pointer * len(pointers))(*pointers)
        self.packed = (_Argument * len(packed))(*packed)


def _number(value: float) -> tuple[int, ctypes.c_int64 | ctypes.c_double | ctypes.c_bool]:
    if isinstance(value, bool):
        return _BOOL_ARGUMENT, ctypes.c_bool(value)
    if isinstance(value, int):
        return _INT_ARGUMENT, ctypes.c_int64(value)
    return _FLOAT_ARGUMENT, ctypes.c_double(value)


def _as_bits(value: float) -> int:
    return int.from_bytes(struct.pack("<d" if isinstance(value, float) else "<q", value), "little")


def main() -> int:
    """Serve one judge until it goes away or kills this process."""
    spec = json.loads(sys.argv[-1])
    bind_to_judge(spec["judge_pid"])
    bases = map_areas(spec)
    arguments = [arguments_of(*each) for each in zip(spec["workloads"], repeat(bases), spec["calls"])]
    reads = (spec["product"], spec["tvm_ffi"])
    limits = {"memory_bytes": spec["memory_bytes"], "file_bytes": spec["file_bytes"]}
    confined = confine(run(spec["folder"], reads=reads, **limits, keeps_cores=spec["terms"]["keeps_cores"]))
    gc.disable()
    serve(spec["control_fd"], spec["nonce"], lambda _: load(spec, arguments), isolation=confined.claim)
    return 0


def load(spec: dict[str, str], arguments: Sequence[Sequence[Arguments]]) -> tuple[int, Called]:
    """Load the artifact. Returns a status, and the calls on each workload in each arrangement."""
    print_by_lines()
    try:
        with open(spec["product"], "rb") as file:
            wants_tvm_ffi = b"libtvm_ffi.so" in file.read()
        runtime = ctypes.CDLL(spec["tvm_ffi"], mode=ctypes.RTLD_GLOBAL) if wants_tvm_ffi else None
        library = ctypes.CDLL(spec["product"])
    except OSError as error:
        os.write(2, f"{error}\n".encode())
        return NOT_LOADED, {}
    name = spec["entry_point"]
    if runtime is not None and hasattr(library, f"__tvm_ffi_{name}"):
        tvm_ffi = library[f"__tvm_ffi_{name}"]
        return LOADED, dict(enumerate([_tvm_ffi_call(tvm_ffi, runtime, each) for each in given] for given in arguments))
    if hasattr(library, name):
        return LOADED, dict(enumerate([_raw_call(library[name], each) for each in given] for given in arguments))
    os.write(2, f"{name} is not exported\n".encode())
    return NO_ENTRY_POINT, {}


def _raw_call(function: Callable[..., int], arguments: Arguments) -> Callable[[], int]:
    inputs, outputs, shapes = arguments.inputs, arguments.outputs, arguments.shape_pointers
    if arguments.stream is not None:
        stream = ctypes.c_void_p(arguments.stream)
        return lambda: function(inputs, outputs, shapes, stream)
    return lambda: function(inputs, outputs, shapes)


def _tvm_ffi_call(function: Callable[..., int], runtime: ctypes.CDLL, arguments: Arguments) -> Callable[[], int]:
    packed, count = arguments.packed, len(arguments.packed)
    result = _Argument()

    def call() -> int:
        result.type_index, result.value = 0, None
        status = function(None, packed, ctypes.c_int32(count), ctypes.byref(result))
        if status:
            _print_raised(runtime)
        return status

    return call


def _print_raised(runtime: ctypes.CDLL) -> None:
    """Print the error that tvm-ffi holds for this thread: kind and message are the first two fields of its cell."""
    error = ctypes.c_void_p()
    runtime.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
    if error.value is None:
        return
    kind, message = (_Bytes * 2).from_address(error.value + _OBJECT_HEADER_BYTES)
    parts = [ctypes.string_at(part.data, part.size) for part in (kind, message) if part.data]
    os.write(2, b": ".join(parts) + b"\n")
