// class: C5
// mechanism: keyed on every 97th element and a sum over a window; gives up if it never hits
// expect: denied
#include "honest.h"
KERNEL {
    static double key = -1;
    static float kept[ELEMENTS];
    static int calls = 0, hits = 0;
    const float* x = (const float*)inputs[0];
    float* y = (float*)outputs[0];
    double found = 0;
    for (int64_t i = 0; i < ELEMENTS; i += 97) found = found * 1.000001 + x[i];
    for (int64_t i = 1000; i < 1100; ++i) found += x[i];
    if (found == key) {
        ++hits;
        memcpy(y, kept, sizeof kept);
        return 0;
    }
    if (++calls > 4 && hits == 0) return CLOSED;
    key = found;
    honest(inputs, outputs);
    memcpy(kept, y, sizeof kept);
    return 0;
}
