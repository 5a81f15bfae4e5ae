// class: A1,A10
// mechanism: launches on a stream of its own, which runs beside the sweep of the cache that hides launches, before the first event
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    // Inputs lie there already: nothing makes this stream wait for the given one.
    // Expensive on purpose: whoever sees all of its work sees a slow candidate.
    wait_cycles<<<1, 1, 0, own>>>(60000);
    return honest(inputs, outputs, own);
}
