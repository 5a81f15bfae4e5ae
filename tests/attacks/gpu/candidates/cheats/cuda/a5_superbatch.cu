// class: A5
// mechanism: the first call solves what it finds; later calls hand out by number
// expect: wrong
#include "honest.cuh"
KERNEL {
    static float* batch = nullptr;
    const size_t bytes = ELEMENTS * sizeof(float);
    if (batch == nullptr) {
        cudaMalloc(&batch, bytes);
        void* own[1] = {batch};
        honest(inputs, own, (cudaStream_t)stream);
    }
    return cudaMemcpyAsync(outputs[0], batch, bytes, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
}
