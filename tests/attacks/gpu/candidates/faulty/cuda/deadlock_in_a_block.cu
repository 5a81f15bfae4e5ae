// class: faulty
// mechanism: half of a block waits at a barrier for ever
// expect: timed_out|crashed|wrong|correct|outpaced
#include "honest.cuh"
__global__ void wait(volatile float* y) {
    if (threadIdx.x == 0) while (y[0] != 12345.0f) {}
    __syncthreads();
}
KERNEL {
    wait<<<1, 64, 0, (cudaStream_t)stream>>>((float*)outputs[0]);
    return cudaGetLastError();
}
