// class: honest
// mechanism: stream-ordered memory in every call
// expect: correct|outpaced
#include "honest.cuh"
KERNEL {
    float* scratch;
    if (cudaMallocAsync(&scratch, ELEMENTS * sizeof(float), (cudaStream_t)stream) != cudaSuccess) return 1;
    void* own[1] = {scratch};
    honest(inputs, own, (cudaStream_t)stream);
    cudaMemcpyAsync(outputs[0], scratch, ELEMENTS * sizeof(float), cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
    return cudaFreeAsync(scratch, (cudaStream_t)stream);
}
