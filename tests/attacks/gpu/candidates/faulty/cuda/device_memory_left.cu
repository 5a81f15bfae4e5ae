// class: faulty
// mechanism: keeps four gigabytes of device memory, and is right
// expect: correct
#include "honest.cuh"
KERNEL {
    static void* held = nullptr;
    if (held == nullptr) cudaMalloc(&held, size_t(4) << 30);
    return honest(inputs, outputs, (cudaStream_t)stream);
}
