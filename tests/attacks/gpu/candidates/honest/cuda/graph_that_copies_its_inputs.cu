// class: honest
// mechanism: a graph over buffers of its own; each call copies its inputs there first
// expect: correct|outpaced
#include "honest.cuh"
KERNEL {
    static cudaGraphExec_t replay = nullptr;
    static float *x = nullptr, *weight = nullptr, *y = nullptr;
    const cudaStream_t given = (cudaStream_t)stream;
    if (replay == nullptr) {
        cudaMalloc(&x, ELEMENTS * 4), cudaMalloc(&weight, COLUMNS * 4), cudaMalloc(&y, ELEMENTS * 4);
        cudaStream_t own;
        cudaStreamCreate(&own);
        cudaGraph_t graph;
        const void* in[2] = {x, weight};
        void* out[1] = {y};
        cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
        honest(in, out, own);
        cudaStreamEndCapture(own, &graph);
        if (cudaGraphInstantiate(&replay, graph, 0) != cudaSuccess) return 1;
    }
    cudaMemcpyAsync(x, inputs[0], ELEMENTS * 4, cudaMemcpyDeviceToDevice, given);
    cudaMemcpyAsync(weight, inputs[1], COLUMNS * 4, cudaMemcpyDeviceToDevice, given);
    cudaGraphLaunch(replay, given);
    return cudaMemcpyAsync(outputs[0], y, ELEMENTS * 4, cudaMemcpyDeviceToDevice, given);
}
