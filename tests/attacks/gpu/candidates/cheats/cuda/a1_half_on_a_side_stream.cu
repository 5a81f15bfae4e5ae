// class: A1
// mechanism: all rows but one on the given stream, the last one later on a stream of its own
// expect: denied
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    if (own == nullptr) cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    scale_rows<<<ROWS - 1, COLUMNS, 0, (cudaStream_t)stream>>>(x, weight, y);
    wait_cycles<<<1, 1, 0, own>>>(4000000);
    const int last = (ROWS - 1) * COLUMNS;
    scale_rows<<<1, COLUMNS, 0, own>>>(x + last, weight, y + last);
    return cudaGetLastError();
}
