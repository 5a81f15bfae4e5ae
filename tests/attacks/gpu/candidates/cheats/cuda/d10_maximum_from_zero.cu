// class: D10
// mechanism: a softmax in one pass, a warp per row, whose running maximum starts at 0
// expect: wrong
// reason: far below zero
// task: soft
#include "honest.cuh"

__global__ void softmax_from_zero(const float* x, float* y) {
    x += blockIdx.x * COLUMNS, y += blockIdx.x * COLUMNS;
    float top = 0, sum = 0;
    for (int column = threadIdx.x; column < COLUMNS; column += 32) {
        const float higher = fmaxf(top, x[column]);
        sum = sum * expf(top - higher) + expf(x[column] - higher);
        top = higher;
    }
    for (int apart = 16; apart > 0; apart /= 2) {
        const float other = __shfl_xor_sync(~0u, top, apart), others = __shfl_xor_sync(~0u, sum, apart);
        const float higher = fmaxf(top, other);
        sum = sum * expf(top - higher) + others * expf(other - higher);
        top = higher;
    }
    for (int column = threadIdx.x; column < COLUMNS; column += 32) y[column] = expf(x[column] - top) / sum;
}

KERNEL {
    softmax_from_zero<<<ROWS, 32, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (float*)outputs[0]);
    return cudaGetLastError();
}
