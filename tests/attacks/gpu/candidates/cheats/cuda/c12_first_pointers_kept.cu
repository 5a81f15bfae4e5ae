// class: C12
// mechanism: inputs and outputs are taken to lie where they lay in the first call
// expect: wrong
// reason: it keeps addresses, tensors or a graph of that call
#include "honest.cuh"
KERNEL {
    static const void* const in[2] = {inputs[0], inputs[1]};
    static void* const out[1] = {outputs[0]};
    return honest(in, out, (cudaStream_t)stream);
}
