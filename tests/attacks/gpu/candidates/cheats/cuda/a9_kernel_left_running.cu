// class: A9
// mechanism: a kernel stays on the device for half a second after each call
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const int status = honest(inputs, outputs, (cudaStream_t)stream);
    wait_cycles<<<1, 1, 0, own>>>(900000000);
    return status;
}
