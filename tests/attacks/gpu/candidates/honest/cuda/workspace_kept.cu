// class: honest
// mechanism: device memory is allocated once and used in every call
// expect: correct
#include "honest.cuh"
__global__ void sums_of(const float* x, float* sums) {
    float sum = 0;
    for (int c = 0; c < COLUMNS; ++c) sum += fabsf(x[threadIdx.x * COLUMNS + c]);
    sums[threadIdx.x] = sum;
}
__global__ void scale(const float* x, const float* weight, const float* sums, float* y) {
    const int i = blockIdx.x * COLUMNS + threadIdx.x;
    y[i] = x[i] * weight[threadIdx.x] / (1 + sums[blockIdx.x] / COLUMNS);
}
KERNEL {
    static float* sums = nullptr;
    if (sums == nullptr) cudaMalloc(&sums, ROWS * sizeof(float));
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    sums_of<<<1, ROWS, 0, (cudaStream_t)stream>>>(x, sums);
    scale<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(x, weight, sums, (float*)outputs[0]);
    return cudaGetLastError();
}
