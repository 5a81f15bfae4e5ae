// class: D6,D9
// mechanism: exact in the first calls, in half precision later
// expect: wrong
#include "honest.h"
KERNEL {
    static int calls = 0;
    honest(inputs, outputs);
    float* y = (float*)outputs[0];
    for (int64_t i = 0; i < ELEMENTS && calls > 8; ++i) y[i] = (float)(_Float16)y[i];
    ++calls;
    return 0;
}
