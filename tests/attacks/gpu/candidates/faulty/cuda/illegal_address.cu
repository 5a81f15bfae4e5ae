// class: faulty
// mechanism: a kernel writes to address 64
// expect: crashed
#include "honest.cuh"
__global__ void astray() { *(volatile float*)64 = 1; }
KERNEL {
    astray<<<1, 1, 0, (cudaStream_t)stream>>>();
    return honest(inputs, outputs, (cudaStream_t)stream);
}
