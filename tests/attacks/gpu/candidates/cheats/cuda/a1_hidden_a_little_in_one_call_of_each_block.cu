// class: A1,A10
// mechanism: every other call's last 35 us go on beside the last event: of a block's mean half of that
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static int calls = 0;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const cudaStream_t chosen = calls++ % 2 ? own : (cudaStream_t)stream;
    wait_cycles<<<1, 1, 0, chosen>>>(65000);
    return honest(inputs, outputs, chosen);
}
