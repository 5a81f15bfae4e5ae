// class: A1,A10
// mechanism: solves on a stream of its own beside the sweep of the cache; on the given stream it only copies
// expect: denied|slow
#include "honest.cuh"
KERNEL {
    static cudaStream_t own = nullptr;
    static cudaEvent_t done;
    static float* solved = nullptr;
    if (own == nullptr) {
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
        cudaMalloc(&solved, ELEMENTS * sizeof(float));
    }
    void* there[1] = {solved};
    // Expensive on purpose: whoever sees all of its work sees a slow candidate.
    wait_cycles<<<1, 1, 0, own>>>(60000);
    honest(inputs, there, own);
    cudaEventRecord(done, own);
    cudaStreamWaitEvent((cudaStream_t)stream, done, 0);
    return cudaMemcpyAsync(outputs[0], solved, ELEMENTS * sizeof(float), cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
}
