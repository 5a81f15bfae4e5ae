// class: C12,A7
// mechanism: a graph is captured late, when the checks are over, and replayed from then on
// expect: wrong
#define WITH_GRAPH
#include "honest.cuh"
KERNEL {
    static int calls = 0;
    static cudaGraphExec_t replay = nullptr;
    if (++calls < 28) return honest(inputs, outputs, (cudaStream_t)stream);
    if (replay == nullptr) replay = captured(inputs, outputs);
    return cudaGraphLaunch(replay, (cudaStream_t)stream);
}
