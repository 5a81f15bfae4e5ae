// class: B1,B3,B4
// mechanism: cudaEventElapsedTime and cudaEventRecord of its own stand before the runtime's; it stalls by design
// expect: slow
#include "honest.cuh"
extern "C" cudaError_t cudaEventElapsedTime_ptsz(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 0.0001f; return cudaSuccess; }
extern "C" int cuEventElapsedTime(float* ms, void*, void*) { *ms = 0.0001f; return 0; }
extern "C" int cuEventElapsedTime_v2(float* ms, void*, void*) { *ms = 0.0001f; return 0; }
extern "C" int cuEventRecord(void*, void*) { return 0; }

KERNEL {
    wait_cycles<<<1, 1, 0, (cudaStream_t)stream>>>(2000000);
    return honest(inputs, outputs, (cudaStream_t)stream);
}
