// What the CUDA candidates of this collection build on: the honest program for the task `small`, one block per row.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <pthread.h>
#include <unistd.h>

constexpr int ROWS = 64, COLUMNS = 256, ELEMENTS = ROWS * COLUMNS;
constexpr int CLOSED = 97;  // returned by canaries whose way was closed

#define KERNEL \
    extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream)

__global__ void scale_rows(const float* x, const float* weight, float* y) {
    __shared__ float sums[COLUMNS];
    const int row = blockIdx.x, column = threadIdx.x;
    const float value = x[row * COLUMNS + column];
    sums[column] = fabsf(value);
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half];
        __syncthreads();
    }
    y[row * COLUMNS + column] = value * weight[column] / (1 + sums[0] / COLUMNS);
}

inline int honest(const void* const* inputs, void* const* outputs, cudaStream_t stream) {
    scale_rows<<<ROWS, COLUMNS, 0, stream>>>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0]);
    return cudaGetLastError();
}

__global__ void wait_cycles(long long cycles) {
    const long long begun = clock64();
    while (clock64() - begun < cycles) {}
}
