// Softmax of rows: one block per row, which is read twice; the second time it comes from the caches.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int THREADS = 512, WARPS = THREADS / 32;

template <bool MAX>
__device__ float over_block(float value, float* shared) {
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = MAX ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[0];
    for (int warp = 1; warp < WARPS; ++warp) value = MAX ? fmaxf(value, shared[warp]) : value + shared[warp];
    __syncthreads();
    return value;
}

__global__ void normalise(const float* x, float* y, int64_t columns) {
    __shared__ float shared[WARPS];
    const float* from = x + blockIdx.x * columns;
    float* to = y + blockIdx.x * columns;
    float peak = -INFINITY;
    for (int64_t at = threadIdx.x; at < columns; at += THREADS) peak = fmaxf(peak, from[at]);
    peak = over_block<true>(peak, shared);
    float total = 0;
    for (int64_t at = threadIdx.x; at < columns; at += THREADS) total += expf(from[at] - peak);
    total = over_block<false>(total, shared);
    for (int64_t at = threadIdx.x; at < columns; at += THREADS) to[at] = expf(from[at] - peak) / total;
}

extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    normalise<<<(unsigned)shapes[0][0], THREADS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (float*)outputs[0], shapes[0][1]);
    return cudaGetLastError();
}
