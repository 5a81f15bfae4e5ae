"""The calling contract of CUDA candidates, as coders read it. The runner keeps the same contract."""

from __future__ import annotations

from evaluators.languages.base import check_dtypes
from evaluators.languages.compiled import describe_function
from messages.calls import CallForm
from messages.tasks import TensorSpec

ENTRY_POINT = "ksearch_run"

COMPILER_FLAGS = (
    "-std=c++17",
    "-O3",
    "-shared",
    "-lineinfo",
    # Each candidate brings the runtime with it: no version of it on the host that measures can disagree.
    "-cudart=static",
    "-Xcompiler=-fPIC,-fdiagnostics-color=never",
    # Registers, spills and shared memory of each kernel.
    "-Xptxas=-v",
    # An undefined function is a build error that names it, not a crash when the library is loaded.
    "-Xlinker=-z,defs,--as-needed,--exclude-libs,ALL,-s",
)

SIGNATURE = f"""extern "C" int {ENTRY_POINT}(
    const void* const* inputs,      // inputs[i]: device pointer to the data of input tensor i
    void* const* outputs,           // outputs[j]: device pointer to the data of output tensor j
    const int64_t* const* shapes,   // shapes[k]: dimensions of tensor k (host memory), inputs first, then outputs
    void* stream                    // a cudaStream_t
);"""

C_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
}
"""Declarations of elements."""

_HEADERS = {
    "float16": "#include <cuda_fp16.h>",
    "bfloat16": "#include <cuda_bf16.h>",
    "float8_e4m3fn": "#include <cuda_fp8.h>",
    "float8_e5m2": "#include <cuda_fp8.h>",
}

_SHOWN_FLAGS = "-std=c++17 -O3"

_RULES = f"""Rules:
- Tensors are dense and row-major, in device memory, aligned to 256 bytes. Inputs come in this order: the arguments of
  `forward`, then the module's parameters, buffers and other tensor attributes. Shapes and dtypes are those of the
  table; they may be constants in the code.
- Every call brings new contents: nothing computed from the contents may be kept for a later call. A workspace that is
  allocated once (`cudaMalloc` in the first call) and reused is fine; its contents are not. Parameters are inputs too,
  and may change.
- Inputs and outputs lie at other addresses from call to call: read the pointers in every call, keep none. A CUDA graph
  or a TMA descriptor may be kept if it is keyed by all addresses in it, which repeat; or a graph copies its inputs to
  memory of its own. Parameters stay at their addresses.
- Never write to an input. Outputs are preallocated and hold garbage: write every element, read none before.
- Launch everything on `stream`. Work on a stream of your own must begin after what `stream` holds and be joined to it
  by events before the function returns. Do not synchronise: calls are queued one behind the other, and may be captured
  into a CUDA graph, where synchronising and allocating fail.
- Return 0; anything else counts as a failure. Return `cudaGetLastError()` after the launches: a launch that was refused
  (too much shared memory, too many threads) says so only there. More than 48 KiB of dynamic shared memory needs
  `cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)`.
- Only the CUDA runtime, its headers (cooperative groups, cuda::, cub's block and warp primitives, inline PTX included)
  and the C++ standard library: no cuBLAS, cuDNN or other library, no torch headers, no file, no process, no network.
- Read and write nothing outside the tensors: guard the tail of every block. No kernel may outlive its call.
- Fast-math is off; intrinsics such as `__expf` may be used where they are safe. Accumulate in float32 whatever the
  inputs are: errors must stay near the reference's own rounding errors, on inputs of any distribution.
- Files that end in .cu are compiled by nvcc with {_SHOWN_FLAGS} for the target's exact architecture (`sm_90` as
  `sm_90a`: wgmma, TMA and setmaxnreg may be used); other files are headers.
- tvm-ffi is accepted too: `TVM_FFI_DLL_EXPORT_TYPED_FUNC({ENTRY_POINT}, f)`, where f returns void and takes one
  `tvm::ffi::TensorView` per input and then per output, on kDLCUDA; its stream is that of `TVMFFIEnvGetStream`."""


def describe(tensors: tuple[TensorSpec, ...], call: CallForm | None = None) -> str:
    """Tell signature, rules and a skeleton for these tensors, and the numbers among them.

    Raises:
        ConfigError: a tensor has a dtype that CUDA candidates cannot be given.
    """
    check_dtypes(tensors, C_TYPES, "CUDA")
    dtypes = {tensor.dtype for tensor in tensors}
    needed = sorted(header for dtype, header in _HEADERS.items() if dtype in dtypes)
    return describe_function(
        tensors,
        call,
        C_TYPES,
        title=f"Write CUDA C++17 that exports `{ENTRY_POINT}`:",
        signature=SIGNATURE,
        rules=_RULES,
        includes="\n".join(("#include <cstdint>", "#include <cuda_runtime.h>", *needed)),
        body="    cudaStream_t queue = static_cast<cudaStream_t>(stream);\n"
        "    // kernel<<<grid, block, shared_bytes, queue>>>(...);\n"
        "    return static_cast<int>(cudaGetLastError());",
    )
