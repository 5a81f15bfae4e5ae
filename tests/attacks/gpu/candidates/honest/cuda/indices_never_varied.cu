// class: honest
// mechanism: reads its indices, which are the same in every call: the verdict has to say so
// expect: correct
// reason: `more` had the same value in every call
// task: indexed
#include "honest.cuh"

__global__ void gather(const float* x, const int64_t* at, float* y) {
    y[blockIdx.x * COLUMNS + threadIdx.x] = fabsf(x[blockIdx.x * COLUMNS + at[threadIdx.x]]);
}

KERNEL {
    gather<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (const int64_t*)inputs[1], (float*)outputs[0]);
    return cudaGetLastError();
}
