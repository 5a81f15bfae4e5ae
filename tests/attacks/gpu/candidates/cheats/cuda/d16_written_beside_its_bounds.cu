// class: D16
// mechanism: writes one element behind its output
// expect: denied
#include "honest.cuh"
__global__ void astray(float* y) { y[ELEMENTS] = 1; }

KERNEL {
    honest(inputs, outputs, (cudaStream_t)stream);
    astray<<<1, 1, 0, (cudaStream_t)stream>>>((float*)outputs[0]);
    return cudaGetLastError();
}
