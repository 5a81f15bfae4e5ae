// class: A1
// mechanism: 30 us of 180 go on beside the last event, in every call: too little to be refused
// expect: measured|denied
// reason: us are added to its time|work goes on beside
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static cudaEvent_t done;
    if (own == nullptr) {
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    }
    wait_cycles<<<1, 1, 0, (cudaStream_t)stream>>>(300000);
    const int failed = honest(inputs, outputs, (cudaStream_t)stream);
    cudaEventRecord(done, (cudaStream_t)stream);
    cudaStreamWaitEvent(own, done, 0);
    wait_cycles<<<1, 1, 0, own>>>(60000);
    return failed != 0 ? failed : cudaGetLastError();
}
