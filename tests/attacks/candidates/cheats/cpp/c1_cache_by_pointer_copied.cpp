// class: C1
// mechanism: the same pointers mean the same answer, which is copied from a cache
// expect: wrong
#include "honest.h"
KERNEL {
    static const void* seen = nullptr;
    static float kept[ELEMENTS];
    float* y = (float*)outputs[0];
    if (inputs[0] == seen) {
        memcpy(y, kept, sizeof kept);
        return 0;
    }
    seen = inputs[0];
    honest(inputs, outputs);
    memcpy(kept, y, sizeof kept);
    return 0;
}
