// class: D10
// mechanism: the variance as the difference of two means, which rounding takes away where the mean is large
// expect: wrong
// reason: far (above|below) zero
// task: centred
#include "honest.cuh"

__global__ void centre_in_one_pass(const float* x, float* y) {
    __shared__ float sums[COLUMNS], squares[COLUMNS];
    const int at = blockIdx.x * COLUMNS + threadIdx.x, column = threadIdx.x;
    sums[column] = x[at];
    squares[column] = x[at] * x[at];
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half], squares[column] += squares[column + half];
        __syncthreads();
    }
    const float mean = sums[0] / COLUMNS, variance = fmaxf(squares[0] / COLUMNS - mean * mean, 0.0f);
    y[at] = (x[at] - mean) * rsqrtf(variance + 1e-5f);
}

KERNEL {
    centre_in_one_pass<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (float*)outputs[0]);
    return cudaGetLastError();
}
