"""A CUDA candidate for the small task, right and wrong in many ways."""

from __future__ import annotations

from messages.tasks import Candidate, SourceFile, Target, TensorSpec
from tests.evaluators.words import COLUMNS, ROWS

H200 = Target(arch="sm_90", march="", toolchain="as the test says", device="NVIDIA H200")

TENSORS = (
    TensorSpec(name="x", role="input", shape=(ROWS, COLUMNS), dtype="float32"),
    TensorSpec(name="weight", role="parameter", shape=(COLUMNS,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(ROWS, COLUMNS), dtype="float32"),
)

RIGHT = """
#include <cstdint>
#include <cuda_runtime.h>

template <int THREADS, bool EXACT>
__global__ void scale_rows(const float* x, const float* weight, float* y, int columns) {
    __shared__ float partial[THREADS];
    const float* row = x + static_cast<int64_t>(blockIdx.x) * columns;
    float sum = 0;
    for (int c = threadIdx.x; c < columns; c += THREADS) sum += fabsf(row[c]);
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    // in the kernel
    const float scale = 1.0f / (1.0f + partial[0] / columns);
    for (int c = threadIdx.x; c < columns; c += THREADS)
        y[static_cast<int64_t>(blockIdx.x) * columns + c] = row[c] * weight[c] * scale;
}

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes,
                           void* stream) {
    const float* x = static_cast<const float*>(inputs[0]);
    const float* weight = static_cast<const float*>(inputs[1]);
    float* y = static_cast<float*>(outputs[0]);
    const int rows = static_cast<int>(shapes[2][0]), columns = static_cast<int>(shapes[2][1]);
    // before
    scale_rows<256, true><<<rows, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, weight, y, columns);
    return static_cast<int>(cudaGetLastError());
}
"""

HOPPER = """
#include <cstdint>
#include <cuda_runtime.h>

extern "C" __global__ void __launch_bounds__(128) donate(float* y) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    asm volatile("wgmma.fence.sync.aligned;");
    y[threadIdx.x] = 1;
}

extern "C" int ksearch_run(const void* const*, void* const* outputs, const int64_t* const*, void* stream) {
    donate<<<1, 128, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<float*>(outputs[0]));
    return static_cast<int>(cudaGetLastError());
}
"""

TVM_FFI = """
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

__global__ void twice(const float* x, float* y) { y[blockIdx.x] = 2 * x[blockIdx.x]; }

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView y) {
    const DLDevice device = x.device();
    void* stream = TVMFFIEnvGetStream(device.device_type, device.device_id);
    twice<<<4, 1, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(ksearch_run, run);
"""


def cuda(text: str, **more: str) -> Candidate:
    """Return a candidate with one unit, `main.cu`, and further files by name (`_h` stands for `.h`)."""
    files = [SourceFile(path="main.cu", text=text)]
    files.extend(SourceFile(path=name.replace("_", "."), text=extra) for name, extra in more.items())
    return Candidate(language="cuda", entry_point="ksearch_run", files=tuple(files))
