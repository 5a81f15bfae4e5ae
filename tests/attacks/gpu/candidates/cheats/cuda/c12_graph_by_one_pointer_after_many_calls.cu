// class: C12,A7
// mechanism: a graph for each address of the input, whatever the output's was, once the checks are over
// expect: wrong
#define WITH_GRAPH
#include "honest.cuh"
KERNEL {
    static int calls = 0;
    if (++calls < 28) return honest(inputs, outputs, (cudaStream_t)stream);
    static const void* keys[16];
    static cudaGraphExec_t kept[16];
    int at = 0;
    while (keys[at] && keys[at] != inputs[0]) ++at;
    if (!keys[at]) keys[at] = inputs[0], kept[at] = captured(inputs, outputs);
    return cudaGraphLaunch(kept[at], (cudaStream_t)stream);
}
