// class: C12
// mechanism: reads the input where it lay in the first call, and writes where it is told to
// expect: wrong
// reason: it keeps addresses, tensors or a graph of that call
// naive: fresh data
#include "honest.h"
KERNEL {
    static const void* const in[2] = {inputs[0], inputs[1]};
    return honest(in, outputs);
}
