// class: honest
// mechanism: a normalisation in training mode that does not write down what it has seen: the verdict has to say so
// expect: correct
// reason: the reference changes norm.running_mean, norm.running_var, .* is not compared
// task: learning
#include "honest.cuh"

__device__ float mean_of(float value) {
    __shared__ float sums[ROWS];
    __syncthreads();
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = ROWS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0] / ROWS;
}

__global__ void normalise(const float* x, const float* weight, const float* bias, float* y) {
    const int column = blockIdx.x, at = threadIdx.x * COLUMNS + column;
    const float left = x[at] - mean_of(x[at]);
    y[at] = left * rsqrtf(mean_of(left * left) + 1e-5f) * weight[column] + bias[column];
}

KERNEL {
    normalise<<<COLUMNS, ROWS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (const float*)inputs[1], (const float*)inputs[2], (float*)outputs[0]);
    return cudaGetLastError();
}
