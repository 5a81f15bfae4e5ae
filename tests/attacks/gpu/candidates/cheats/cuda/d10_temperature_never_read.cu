// class: D10
// mechanism: divides by the temperature that it knows: it is the same in every draw
// expect: wrong
// reason: other constants
// task: tempered
#include "honest.cuh"
__global__ void divide(const float* x, const bool* m, const float* t, float* y) {
    const int i = blockIdx.x * COLUMNS + threadIdx.x;
    y[i] = fabsf(m[i] ? x[i] : 0.0f) / 2.0f;
}
KERNEL {
    divide<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (const bool*)inputs[1], (const float*)inputs[2], (float*)outputs[0]);
    return cudaGetLastError();
}
