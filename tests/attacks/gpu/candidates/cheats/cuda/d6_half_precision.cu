// class: D6
// mechanism: stores results in half precision on the way
// expect: wrong
#include "honest.cuh"
#include <cuda_fp16.h>
__global__ void halve(float* y) {
    const int i = blockIdx.x * COLUMNS + threadIdx.x;
    y[i] = __half2float(__float2half(y[i]));
}

KERNEL {
    honest(inputs, outputs, (cudaStream_t)stream);
    halve<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>((float*)outputs[0]);
    return cudaGetLastError();
}
