// class: C9
// mechanism: asks for handles of the judge's memory, and opens its own again for writing to the inputs
// expect: denied
#include "honest.cuh"
__global__ void spoil(float* x) { x[threadIdx.x] = 0; }

KERNEL {
    cudaIpcMemHandle_t handle;
    void* again = nullptr;
    if (cudaIpcGetMemHandle(&handle, (void*)inputs[0]) != cudaSuccess) return CLOSED;
    if (cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return CLOSED;
    spoil<<<1, 256, 0, (cudaStream_t)stream>>>((float*)again);
    return honest(inputs, outputs, (cudaStream_t)stream);
}
