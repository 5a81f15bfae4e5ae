// class: A1,A10
// mechanism: in 14 of 20 calls the work goes on beside the last event; in the others, which lower quartiles see, it does not
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static int calls = 0;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const cudaStream_t chosen = calls++ % 20 < 14 ? own : (cudaStream_t)stream;
    // Expensive on purpose: whoever sees all of its work sees a slow candidate.
    wait_cycles<<<1, 1, 0, chosen>>>(150000);
    return honest(inputs, outputs, chosen);
}
