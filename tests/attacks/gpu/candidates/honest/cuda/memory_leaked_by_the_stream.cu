// class: honest
// mechanism: right, but each call takes 32 MiB of stream-ordered memory and never gives it back
// expect: correct
// reason: leak: its memory of the GPU grows by \d{4,5} KiB per call
#include "honest.cuh"
KERNEL {
    void* kept;
    if (cudaMallocAsync(&kept, 32 << 20, (cudaStream_t)stream) != cudaSuccess) return CLOSED;
    return honest(inputs, outputs, (cudaStream_t)stream);
}
