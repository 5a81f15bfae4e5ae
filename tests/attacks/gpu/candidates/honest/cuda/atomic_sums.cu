// class: honest
// mechanism: blocks add to a sum in any order
// expect: correct
#include "honest.cuh"
__global__ void add(const float* x, float* sums) {
    atomicAdd(sums + blockIdx.x, fabsf(x[blockIdx.x * COLUMNS + threadIdx.x]));
}
__global__ void scale(const float* x, const float* weight, const float* sums, float* y) {
    const int i = blockIdx.x * COLUMNS + threadIdx.x;
    y[i] = x[i] * weight[threadIdx.x] / (1 + sums[blockIdx.x] / COLUMNS);
}
KERNEL {
    static float* sums = nullptr;
    if (sums == nullptr) cudaMalloc(&sums, ROWS * sizeof(float));
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    cudaMemsetAsync(sums, 0, ROWS * sizeof(float), (cudaStream_t)stream);
    add<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(x, sums);
    scale<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(x, weight, sums, (float*)outputs[0]);
    return cudaGetLastError();
}
