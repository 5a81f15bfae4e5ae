// class: D14
// mechanism: skips the last columns after the first call
// expect: wrong
#include "honest.cuh"
__global__ void spare(const float* x, const float* weight, float* y) {
    float sum = 0;
    for (int c = 0; c < COLUMNS; ++c) sum += fabsf(x[blockIdx.x * COLUMNS + c]);
    if (threadIdx.x < COLUMNS - 5)
        y[blockIdx.x * COLUMNS + threadIdx.x] = x[blockIdx.x * COLUMNS + threadIdx.x] * weight[threadIdx.x] / (1 + sum / COLUMNS);
}

KERNEL {
    static int calls = 0;
    if (calls++ == 0) return honest(inputs, outputs, (cudaStream_t)stream);
    spare<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0]);
    return cudaGetLastError();
}
