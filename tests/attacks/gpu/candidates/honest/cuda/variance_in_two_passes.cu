// class: honest
// mechanism: the variance of what is left once the mean is taken off
// expect: correct|outpaced
// task: centred
#include "honest.cuh"

__device__ float mean_of(float value) {
    __shared__ float sums[COLUMNS];
    __syncthreads();
    sums[threadIdx.x] = value;
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    return sums[0] / COLUMNS;
}

__global__ void centre_in_two_passes(const float* x, float* y) {
    const int at = blockIdx.x * COLUMNS + threadIdx.x;
    const float left = x[at] - mean_of(x[at]);
    y[at] = left * rsqrtf(mean_of(left * left) + 1e-5f);
}

KERNEL {
    centre_in_two_passes<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (float*)outputs[0]);
    return cudaGetLastError();
}
