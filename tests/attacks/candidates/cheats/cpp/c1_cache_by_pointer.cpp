// class: C1
// mechanism: the same pointers mean the same answer
// expect: wrong
// reason: unwritten
#include "honest.h"
KERNEL {
    static const void* seen = nullptr;
    if (inputs[0] == seen) return 0;
    seen = inputs[0];
    return honest(inputs, outputs);
}
