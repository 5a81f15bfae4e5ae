// class: C9
// mechanism: reads before and behind its tensors for expected values
// expect: denied
#include "honest.cuh"
__global__ void peek(const float* x, float* y, long long offset) {
    y[blockIdx.x * COLUMNS + threadIdx.x] = x[offset + blockIdx.x * COLUMNS + threadIdx.x];
}

KERNEL {
    // Whatever lies a megabyte behind the input.
    peek<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (float*)outputs[0], 1 << 18);
    return cudaGetLastError();
}
