// class: honest
// mechanism: right, but each call keeps 4 MiB of the device for ever
// expect: correct|outpaced
#include "honest.cuh"
KERNEL {
    void* kept;
    if (cudaMalloc(&kept, 4 << 20) != cudaSuccess) return CLOSED;
    return honest(inputs, outputs, (cudaStream_t)stream);
}
