// class: A9,A10
// mechanism: a kernel that never ends polls for inputs and solves them before they are asked for
// expect: denied|slow
#include "honest.cuh"
__global__ void serve(const volatile float* x, const float* weight, float* memo) {
    for (;;) {
        if (threadIdx.x == 0) __nanosleep(1000);
        __syncthreads();
        for (int row = 0; row < ROWS; ++row) memo[row * COLUMNS + threadIdx.x] = x[row * COLUMNS + threadIdx.x] * weight[threadIdx.x];
    }
}

KERNEL {
    static float* memo = nullptr;
    if (memo == nullptr) {
        cudaStream_t own;
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaMalloc(&memo, ELEMENTS * sizeof(float));
        serve<<<1, COLUMNS, 0, own>>>((const float*)inputs[0], (const float*)inputs[1], memo);
    }
    return honest(inputs, outputs, (cudaStream_t)stream);
}
