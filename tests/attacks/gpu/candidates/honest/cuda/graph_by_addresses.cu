// class: honest
// mechanism: a graph is kept for each set of addresses
// expect: correct|outpaced
#define WITH_GRAPH
#include "honest.cuh"
#include <map>
#include <tuple>
KERNEL {
    static std::map<std::tuple<const void*, const void*, void*>, cudaGraphExec_t> graphs;
    cudaGraphExec_t& replay = graphs[std::make_tuple(inputs[0], inputs[1], outputs[0])];
    if (replay == nullptr) replay = captured(inputs, outputs);
    return cudaGraphLaunch(replay, (cudaStream_t)stream);
}
