// class: D10
// mechanism: masks where it knows that the mask does: it is the same in every draw
// expect: wrong
// reason: other constants
// task: tempered
#include "honest.cuh"

__global__ void mask_known(const float* x, const float* temperature, float* y) {
    const int at = blockIdx.x * COLUMNS + threadIdx.x;
    y[at] = threadIdx.x < 200 ? fabsf(x[at]) / *temperature : 0.0f;
}

KERNEL {
    mask_known<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (const float*)inputs[2], (float*)outputs[0]);
    return cudaGetLastError();
}
