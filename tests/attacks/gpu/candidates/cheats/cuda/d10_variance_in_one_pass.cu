// class: D10
// mechanism: the variance as the difference of two means, which rounding takes away where the mean is large
// expect: wrong
// reason: far (above|below) zero
// task: centred
#include "honest.cuh"
__global__ void in_one_pass(const float* x, float* y) {
    __shared__ float sums[COLUMNS], squares[COLUMNS];
    const int row = blockIdx.x, column = threadIdx.x;
    const float value = x[row * COLUMNS + column];
    sums[column] = value, squares[column] = value * value;
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half], squares[column] += squares[column + half];
        __syncthreads();
    }
    const float mean = sums[0] / COLUMNS, variance = fmaxf(squares[0] / COLUMNS - mean * mean, 0.0f);
    y[row * COLUMNS + column] = (value - mean) / sqrtf(variance + 1e-5f);
}
KERNEL {
    in_one_pass<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (float*)outputs[0]);
    return cudaGetLastError();
}
