"""Calls a candidate that is a shared library. Stdlib only: a separate, disposable process per candidate.

Its argument is a JSON object (`RunnerSpec` in `evaluators/judge/launching.py`). The calling contracts are those of
`evaluators/languages/cpp/contract.py`: raw `extern "C"`, and tvm-ffi's C ABI (github.com/apache/tvm-ffi,
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

from evaluators.runners.base import (
    LOADED,
    NO_ENTRY_POINT,
    NOT_LOADED,
    Called,
    bind_to_judge,
    map_areas,
    serve,
)
from evaluators.sandbox.confine import confine
from evaluators.sandbox.profiles import run
from evaluators.structure import numbers_in

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


class Arguments:
    """The tensors of a workload, in mapped memory, in both contracts' form. Keeps what they point to alive."""

    def __init__(
        self,
        tensors: list[dict[str, object]],
        bases: dict[str, int],
        call: Mapping[str, Any] | None = None,
        *,
        device: int = CPU,
        stream: int | None = None,
    ) -> None:
        """Lay them out.

        Args:
            tensors: `Placed` of each.
            bases: where the areas are mapped.
            call: `CallForm`, where numbers stand among the tensors; null: there are none.
            device: DLDeviceType of the memory.
            stream: on a GPU, what the raw contract is given besides.
        """
        self._device = device
        self.stream = stream
        self.shapes: list[ctypes.Array[ctypes.c_int64]] = []
        self.tensors: list[_Tensor] = []
        addresses: dict[str, list[int]] = {"inputs": [], "outputs": []}
        for tensor in tensors:
            area, shape = str(tensor["area"]), _integers(tensor["shape"])
            address = bases[area] + int(str(tensor["offset"]))
            addresses[area].append(address)
            self._add(address, shape, int(str(tensor["code"])), int(str(tensor["bits"])))
        packed = [_Argument(_TENSOR_ARGUMENT, 0, ctypes.addressof(tensor)) for tensor in self.tensors]
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

    def _add(self, address: int, shape: list[int], code: int, bits: int) -> None:
        strides = [1] * len(shape)
        for index in range(len(shape) - 2, -1, -1):
            strides[index] = strides[index + 1] * shape[index + 1]
        # One element more than there are dimensions: a scalar's arrays may not be empty.
        kind = ctypes.c_int64 * (len(shape) + 1)
        dimensions, steps = kind(*shape), kind(*strides)
        self.shapes.extend((dimensions,))
        pointer = ctypes.POINTER(ctypes.c_int64)
        self.tensors.append(
            _Tensor(
                address,
                self._device,
                0,
                len(shape),
                code,
                bits,
                1,
                ctypes.cast(dimensions, pointer),
                ctypes.cast(steps, pointer),
                0,
            )
        )


def _number(value: float) -> tuple[int, ctypes.c_int64 | ctypes.c_double | ctypes.c_bool]:
    """Return the tvm-ffi type index of a number, and the number where a raw function may read it."""
    if isinstance(value, bool):
        return _BOOL_ARGUMENT, ctypes.c_bool(value)
    if isinstance(value, int):
        return _INT_ARGUMENT, ctypes.c_int64(value)
    return _FLOAT_ARGUMENT, ctypes.c_double(value)


def _as_bits(value: float) -> int:
    """Return a number as the 64 bits of a TVMFFIAny's value."""
    return int.from_bytes(struct.pack("<d" if isinstance(value, float) else "<q", value), "little")


def main() -> int:
    """Serve one judge until it goes away or kills this process."""
    spec = json.loads(sys.argv[-1])
    bind_to_judge(spec["judge_pid"])
    bases = map_areas(spec)
    arguments = [Arguments(*each) for each in zip(spec["workloads"], repeat(bases), spec["calls"])]
    reads = (spec["product"], spec["tvm_ffi"])
    limits = {"memory_bytes": spec["memory_bytes"], "file_bytes": spec["file_bytes"]}
    confined = confine(run(spec["folder"], reads=reads, **limits, keeps_cores=spec["terms"]["keeps_cores"]))
    gc.disable()
    serve(spec["control_fd"], spec["nonce"], lambda _: load(spec, arguments), isolation=confined.claim)
    return 0


def load(spec: dict[str, str], arguments: Sequence[Arguments]) -> tuple[int, Called]:
    """Load the artifact. Returns a status, and what a call is with the arguments of each workload."""
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
        return LOADED, dict(enumerate(_tvm_ffi_call(tvm_ffi, runtime, given) for given in arguments))
    if hasattr(library, name):
        return LOADED, dict(enumerate(_raw_call(library[name], given) for given in arguments))
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


def _integers(value: object) -> list[int]:
    return [int(item) for item in value] if isinstance(value, list) else []
