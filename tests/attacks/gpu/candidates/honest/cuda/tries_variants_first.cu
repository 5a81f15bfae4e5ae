// class: honest
// mechanism: the first call times three block shapes by events and keeps the fastest
// expect: correct
#include "honest.cuh"
KERNEL {
    static bool tried = false;
    if (!tried) {
        cudaEvent_t begun, ended;
        cudaEventCreate(&begun), cudaEventCreate(&ended);
        for (int which = 0; which < 3; ++which) {
            cudaEventRecord(begun, (cudaStream_t)stream);
            honest(inputs, outputs, (cudaStream_t)stream);
            cudaEventRecord(ended, (cudaStream_t)stream);
            cudaEventSynchronize(ended);
        }
        cudaEventDestroy(begun), cudaEventDestroy(ended);
        tried = true;
    }
    return honest(inputs, outputs, (cudaStream_t)stream);
}
