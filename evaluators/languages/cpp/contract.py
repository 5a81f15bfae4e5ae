"""The calling contract of C++ candidates, as coders read it. The runner keeps the same contract."""

from __future__ import annotations

from evaluators.languages.base import check_dtypes
from evaluators.languages.compiled import describe_function
from messages.calls import CallForm
from messages.tasks import TensorSpec

ENTRY_POINT = "ksearch_run"

COMPILER_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fdiagnostics-color=never",
    # An undefined function is a build error that names it, not a crash when the library is loaded.
    "-Wl,-z,defs",
    "-Wl,--as-needed",
    "-Wl,-s",
)

SIGNATURE = f"""extern "C" int {ENTRY_POINT}(
    const void* const* inputs,      // inputs[i]: data of input tensor i
    void* const* outputs,           // outputs[j]: data of output tensor j
    const int64_t* const* shapes    // shapes[k]: dimensions of tensor k, inputs first, then outputs
);"""

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "_Float16",
    "bfloat16": "uint16_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
}
"""Declarations of elements; a bfloat16 is the upper half of a float's bits, floats of eight bits are their bits."""

_SHOWN_FLAGS = " ".join(flag for flag in COMPILER_FLAGS if not flag.startswith(("-Wl", "-fdiag")))

_RULES = f"""Rules:
- Tensors are dense and row-major. Inputs come in this order: the arguments of `forward`, then the module's parameters,
  buffers and other tensor attributes. Shapes and dtypes are those of the table; they may be constants in the code.
- Every call brings new contents: nothing computed from the contents may be kept for a later call. A workspace that is
  allocated once and reused is fine. Parameters are inputs too, and may change.
- Inputs and outputs lie at other addresses from call to call: read the pointers in every call, keep none. What contains
  addresses may be kept if it is keyed by all of them; they repeat. Parameters stay at their addresses.
- Inputs are mapped read-only. Outputs are preallocated and hold garbage: write every element, read none before.
- The last byte must be written before the function returns. Return 0; anything else counts as a failure.
- Only the C and C++ standard libraries and OpenMP: no other library, no file, no process, no network.
- OpenMP uses as many threads as the reference does. `-ffast-math` is off (pragmas and attributes may turn on what is
  safe); errors must stay near the reference's own rounding errors, on inputs of any distribution.
- Compiled with {_SHOWN_FLAGS} and the `-march` of the target.
- tvm-ffi is accepted too: `TVM_FFI_DLL_EXPORT_TYPED_FUNC({ENTRY_POINT}, f)`, where f returns void and takes one
  `tvm::ffi::TensorView` per input and then per output."""


def describe(tensors: tuple[TensorSpec, ...], call: CallForm | None = None) -> str:
    """Tell signature, rules and a skeleton for these tensors, and the numbers among them.

    Raises:
        ConfigError: a tensor has a dtype that C++ candidates cannot be given.
    """
    check_dtypes(tensors, C_TYPES, "C++")
    return describe_function(
        tensors,
        call,
        C_TYPES,
        title=f"Write C++17 that exports `{ENTRY_POINT}`:",
        signature=SIGNATURE,
        rules=_RULES,
        includes="#include <cstdint>",
        body="    // ...\n    return 0;",
    )
