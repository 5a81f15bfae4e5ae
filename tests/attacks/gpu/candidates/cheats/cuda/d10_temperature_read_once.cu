// class: D10
// mechanism: fetches the temperature in its first call and divides by that in all others: it is the same in every draw
// expect: wrong
// reason: other constants
// task: tempered
#include "honest.cuh"

__global__ void divide(const float* x, const bool* mask, float temperature, float* y) {
    const int at = blockIdx.x * COLUMNS + threadIdx.x;
    y[at] = mask[at] ? fabsf(x[at]) / temperature : 0.0f;
}

KERNEL {
    static float temperature = 0;
    if (temperature == 0) {
        cudaMemcpyAsync(&temperature, inputs[2], sizeof temperature, cudaMemcpyDeviceToHost, (cudaStream_t)stream);
        cudaStreamSynchronize((cudaStream_t)stream);
    }
    divide<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (const bool*)inputs[1], temperature, (float*)outputs[0]);
    return cudaGetLastError();
}
