// class: C12
// mechanism: keeps the arrays of pointers that the first call was given
// expect: wrong
// reason: it keeps addresses, tensors or a graph of that call
// naive: fresh data
#include "honest.h"
KERNEL {
    static const void* const* const in = inputs;
    static void* const* const out = outputs;
    return honest(in, out);
}
