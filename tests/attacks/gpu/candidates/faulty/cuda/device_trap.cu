// class: faulty
// mechanism: a kernel traps
// expect: crashed
#include "honest.cuh"
__global__ void fall() { __trap(); }
KERNEL {
    fall<<<1, 1, 0, (cudaStream_t)stream>>>();
    return cudaGetLastError();
}
