// class: C12,A7
// mechanism: a graph is captured on the first call's addresses and replayed for all
// expect: wrong
// reason: it keeps addresses, tensors or a graph of that call
#define WITH_GRAPH
#include "honest.cuh"
KERNEL {
    static cudaGraphExec_t replay = captured(inputs, outputs);
    return cudaGraphLaunch(replay, (cudaStream_t)stream);
}
