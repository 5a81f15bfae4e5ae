// class: A1,A10
// mechanism: the work goes on beside the last event in as many calls as are timed, and no longer in those that are to settle doubts
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static int calls = 0;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const cudaStream_t chosen = calls++ < 90 ? own : (cudaStream_t)stream;
    // Expensive on purpose: whoever sees all of its work sees a slow candidate.
    wait_cycles<<<1, 1, 0, chosen>>>(150000);
    return honest(inputs, outputs, chosen);
}
