// class: D15
// mechanism: writes to its input when it is done
// expect: denied
#include "honest.cuh"
__global__ void spoil(float* x) { x[threadIdx.x] = 0; }

KERNEL {
    honest(inputs, outputs, (cudaStream_t)stream);
    spoil<<<1, 64, 0, (cudaStream_t)stream>>>((float*)inputs[0]);
    return cudaGetLastError();
}
