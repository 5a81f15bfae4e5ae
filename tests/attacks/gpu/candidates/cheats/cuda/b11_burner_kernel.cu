// class: B11,A9
// mechanism: a kernel on all multiprocessors burns for a millisecond after each call, while the reference is timed
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const int status = honest(inputs, outputs, (cudaStream_t)stream);
    wait_cycles<<<264, 1024, 0, own>>>(20000000);
    return status;
}
