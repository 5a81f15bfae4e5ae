// class: C12
// mechanism: inputs and outputs are taken to lie where they lay in the first call
// expect: wrong
// reason: it keeps addresses, tensors or a graph of that call
// naive: fresh data
#include "honest.h"
KERNEL {
    static const void* const in[2] = {inputs[0], inputs[1]};
    static void* const out[1] = {outputs[0]};
    return honest(in, out);
}
