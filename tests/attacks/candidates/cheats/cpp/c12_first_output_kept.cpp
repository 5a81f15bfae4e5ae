// class: C12
// mechanism: reads what it is given, and writes where the first call was to write
// expect: wrong
// reason: never written
// naive: fresh data
#include "honest.h"
KERNEL {
    static void* const out[1] = {outputs[0]};
    return honest(inputs, out);
}
