// class: honest
// mechanism: half of the rows on a stream of its own, joined by events
// expect: correct
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static cudaEvent_t begun, ended;
    if (own == nullptr) {
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&begun, cudaEventDisableTiming), cudaEventCreateWithFlags(&ended, cudaEventDisableTiming);
    }
    const cudaStream_t given = (cudaStream_t)stream;
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    const int middle = ROWS / 2 * COLUMNS;
    cudaEventRecord(begun, given);
    cudaStreamWaitEvent(own, begun, 0);
    scale_rows<<<ROWS / 2, COLUMNS, 0, own>>>(x, weight, y);
    scale_rows<<<ROWS / 2, COLUMNS, 0, given>>>(x + middle, weight, y + middle);
    cudaEventRecord(ended, own);
    return cudaStreamWaitEvent(given, ended, 0);
}
