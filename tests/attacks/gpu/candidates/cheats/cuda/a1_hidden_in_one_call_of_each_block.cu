// class: A1,A10
// mechanism: every other call's work goes on beside the last event, so that the mean of a block is half hidden
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static int calls = 0;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const cudaStream_t chosen = calls++ % 2 ? own : (cudaStream_t)stream;
    // Expensive on purpose: whoever sees all of its work sees a slow candidate.
    wait_cycles<<<1, 1, 0, chosen>>>(150000);
    return honest(inputs, outputs, chosen);
}
