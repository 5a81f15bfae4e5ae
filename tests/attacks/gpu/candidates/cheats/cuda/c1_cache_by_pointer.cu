// class: C1
// mechanism: the same device pointers mean the same answer
// expect: wrong
#include "honest.cuh"
KERNEL {
    static const void* seen = nullptr;
    static float* kept = nullptr;
    const size_t bytes = ELEMENTS * sizeof(float);
    if (seen == inputs[0]) return cudaMemcpyAsync(outputs[0], kept, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
    seen = inputs[0];
    cudaMalloc(&kept, bytes);
    honest(inputs, outputs, (cudaStream_t)stream);
    return cudaMemcpyAsync(kept, outputs[0], bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
}
