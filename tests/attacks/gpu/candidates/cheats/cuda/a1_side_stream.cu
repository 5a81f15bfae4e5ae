// class: A1
// mechanism: launches on a stream of its own and never joins it
// expect: denied
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    wait_cycles<<<1, 1, 0, own>>>(4000000);
    return honest(inputs, outputs, own);
}
