// class: D10
// mechanism: a softmax whose maximum starts at 0, and stays there where everything lies far below
// expect: wrong
// reason: far below zero
// task: soft
#include "honest.cuh"
__global__ void from_zero(const float* x, float* y) {
    __shared__ float tops[COLUMNS], sums[COLUMNS];
    const int row = blockIdx.x, column = threadIdx.x;
    const float value = x[row * COLUMNS + column];
    tops[column] = fmaxf(value, 0.0f);
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) tops[column] = fmaxf(tops[column], tops[column + half]);
        __syncthreads();
    }
    const float weight = expf(value - tops[0]);
    sums[column] = weight;
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half];
        __syncthreads();
    }
    y[row * COLUMNS + column] = weight / sums[0];
}
KERNEL {
    from_zero<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (float*)outputs[0]);
    return cudaGetLastError();
}
