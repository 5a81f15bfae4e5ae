"""CUDA C++ for NVIDIA GPUs: raw `extern "C"` or tvm-ffi entry points, compiled by nvcc on any host."""

from __future__ import annotations

from evaluators.languages.base import LanguageSpec
from evaluators.languages.cuda import craft
from evaluators.languages.cuda.support import CUDA

SPEC = LanguageSpec(
    main_path="kernel.cu",
    suffixes=(".cu",),
    fences=("cuda", "cu", "cpp", "c++", "c", "h", "cuh"),
    is_native=True,
    supports={"cuda": CUDA},
    craft=craft,
    proof="""
#include <cstdint>
#include <cuda_runtime.h>

__global__ void add_mean(const float* x, float* y, int columns) {
    __shared__ float sums[256];
    x += int64_t(blockIdx.x) * columns;
    y += int64_t(blockIdx.x) * columns;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) sum += x[c];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    const float mean = sums[0] / columns;
    for (int c = threadIdx.x; c < columns; c += 256) y[c] = 2.0f * x[c] + mean;
}

extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    const int rows = shapes[0][0], columns = shapes[0][1];
    add_mean<<<rows, 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float*>(inputs[0]), static_cast<float*>(outputs[0]), columns);
    return static_cast<int>(cudaGetLastError());
}
""",
    proof_part="2.0f * x",
)
