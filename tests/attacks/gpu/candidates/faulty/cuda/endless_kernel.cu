// class: faulty
// mechanism: a kernel that never ends
// expect: timed_out
#include "honest.cuh"
__global__ void endless(volatile float* y) { while (y[0] != 12345.0f) y[1] += 1; }
KERNEL {
    endless<<<1, 1, 0, (cudaStream_t)stream>>>((float*)outputs[0]);
    return cudaGetLastError();
}
