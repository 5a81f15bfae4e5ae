// class: A7
// mechanism: a graph is captured with a copy of the first input and replayed for all
// expect: wrong|rejected|crashed
#include "honest.cuh"
KERNEL {
    static cudaGraphExec_t replay = nullptr;
    static float* copy = nullptr;
    if (replay == nullptr) {
        cudaMalloc(&copy, ELEMENTS * sizeof(float));
        cudaMemcpyAsync(copy, inputs[0], ELEMENTS * sizeof(float), cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
        cudaStream_t own;
        cudaStreamCreate(&own);
        cudaGraph_t graph;
        const void* stale[2] = {copy, inputs[1]};
        cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
        honest(stale, outputs, own);
        cudaStreamEndCapture(own, &graph);
        if (cudaGraphInstantiate(&replay, graph, 0) != cudaSuccess) return 1;
    }
    return cudaGraphLaunch(replay, (cudaStream_t)stream);
}
