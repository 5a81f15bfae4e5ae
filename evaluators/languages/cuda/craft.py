"""CUDA C++ for one GPU."""

from __future__ import annotations

from evaluators.hardware.roofline import Hardware

RULES = """\
- Write CUDA C++17: your own kernels and the function that launches them on the stream it is given. Compiled by nvcc
  with -O3 for exactly the GPU that is named below: use what it has, and nothing that it lacks.
- Use the CUDA runtime and its headers (cooperative groups, cub's block and warp primitives, inline PTX). No cuBLAS,
  cuDNN, CUTLASS or torch headers: they are not there.
- One `.cu` file or several; headers of yours are files of their own, included by their path.
- Do not synchronise, and allocate nothing after the first call. Return cudaGetLastError() after the launches.
- Load and store 16 bytes per thread where alignment allows it, neighbours by neighbouring threads."""

EXAMPLE = """\
(The sums of a matrix's rows, of a multiple of 4 columns.) A block sums a row with loads of 16 bytes; warps reduce by
shuffles, one thread adds their sums.

```cuda path=kernel.cu
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

__global__ void __launch_bounds__(THREADS) row_sums(const float4* __restrict__ x, float* __restrict__ sums, int quads) {
    const float4* row = x + static_cast<int64_t>(blockIdx.x) * quads;
    float total = 0.0f;
    for (int i = threadIdx.x; i < quads; i += THREADS) {
        const float4 v = row[i];
        total += (v.x + v.y) + (v.z + v.w);
    }
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    __shared__ float partial[THREADS / 32];
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < THREADS / 32; ++warp) total += partial[warp];
        sums[blockIdx.x] = total;
    }
}

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes,
                           void* stream) {
    const int rows = static_cast<int>(shapes[0][0]), quads = static_cast<int>(shapes[0][1] / 4);
    row_sums<<<rows, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float4*>(inputs[0]), static_cast<float*>(outputs[0]), quads);
    return static_cast<int>(cudaGetLastError());
}
```"""

_TENSOR_MAPS = (
    "TMA's tensor maps are made once, by cuTensorMapEncodeTiled through cudaGetDriverEntryPoint (libcuda is not "
    "linked), and passed as a `const __grid_constant__ CUtensorMap`."
)


def advice(hardware: Hardware) -> tuple[str, ...]:
    """Return advice for this generation."""
    architecture = hardware.architecture
    if architecture is None:
        return ()
    has_tma = any(feature.startswith("TMA") for feature in architecture.has)
    return (*architecture.advice, _TENSOR_MAPS) if has_tma else architecture.advice
