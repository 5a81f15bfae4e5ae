"""The calling contract of C++ candidates, in the words that a coder is told. The runner keeps the same contract."""

from __future__ import annotations

from messages.errors import ConfigError
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
}
"""How elements are declared; a bfloat16 is the upper half of a float's bits."""

_SHOWN_FLAGS = " ".join(flag for flag in COMPILER_FLAGS if not flag.startswith(("-Wl", "-fdiag")))

_RULES = f"""Rules:
- Tensors are dense and row-major. Inputs come in this order: the arguments of `forward`, then the module's parameters,
  buffers and other tensor attributes. Shapes and dtypes are those of the table; they may be constants in the code.
- Every call brings new contents in the same buffers: nothing computed from the contents may be kept for a later call.
  A workspace that is allocated once and reused is fine. Parameters are inputs too, and may change.
- Inputs are mapped read-only. Outputs are preallocated and hold garbage: write every element, read none before.
- The last byte must be written before the function returns. Return 0; anything else counts as a failure.
- Only the C and C++ standard libraries and OpenMP: no other library, no file, no process, no network.
- OpenMP uses as many threads as the reference does. `-ffast-math` is off (pragmas and attributes may turn on what is
  safe); errors must stay near the reference's own rounding errors, on inputs of any distribution.
- Compiled with {_SHOWN_FLAGS} and the `-march` of the target.
- tvm-ffi is accepted too: `TVM_FFI_DLL_EXPORT_TYPED_FUNC({ENTRY_POINT}, f)`, where f returns void and takes one
  `tvm::ffi::TensorView` per input and then per output."""


def describe(tensors: tuple[TensorSpec, ...]) -> str:
    """Tell signature, rules and a skeleton for these tensors.

    Raises:
        ConfigError: a tensor has a dtype that C++ candidates cannot be given.
    """
    for tensor in tensors:
        if tensor.dtype not in C_TYPES:
            raise ConfigError(
                f"tensor {tensor.name!r} is {tensor.dtype}; C++ candidates can be given: {', '.join(C_TYPES)}"
            )
    return "\n\n".join(
        (
            f"Write C++17 that exports `{ENTRY_POINT}`:",
            f"```cpp\n{SIGNATURE}\n```",
            _RULES,
            "Skeleton of the contract (it computes nothing):",
            f"```cpp\n{_skeleton(tensors)}\n```",
        )
    )


def _skeleton(tensors: tuple[TensorSpec, ...]) -> str:
    inputs = [tensor for tensor in tensors if tensor.role != "output"]
    outputs = [tensor for tensor in tensors if tensor.role == "output"]
    lines = ["#include <cstdint>", "", SIGNATURE.removesuffix(";") + " {"]
    for index, tensor in enumerate(inputs):
        kind = C_TYPES[tensor.dtype]
        lines.append(
            f"    const {kind}* {_identifier(tensor.name)} = static_cast<const {kind}*>(inputs[{index}]);"
            f"  // {_shape(tensor)}, dimensions in shapes[{index}]"
        )
    for index, tensor in enumerate(outputs):
        kind = C_TYPES[tensor.dtype]
        lines.append(
            f"    {kind}* {_identifier(tensor.name)} = static_cast<{kind}*>(outputs[{index}]);"
            f"  // {_shape(tensor)}, dimensions in shapes[{len(inputs) + index}]"
        )
    return "\n".join((*lines, "    // ...", "    return 0;", "}"))


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _shape(tensor: TensorSpec) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if len(tensor.shape) == 1 else ''})"
