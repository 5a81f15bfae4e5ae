// class: C2
// mechanism: keyed on the first row's bits; gives up if it never hits
// expect: denied
#include "honest.h"
KERNEL {
    static float key[COLUMNS], kept[ELEMENTS];
    static int calls = 0, hits = 0;
    float* y = (float*)outputs[0];
    if (calls++ > 0 && memcmp(key, inputs[0], sizeof key) == 0) {
        ++hits;
        memcpy(y, kept, sizeof kept);
        return 0;
    }
    if (calls > 4 && hits == 0) return CLOSED;
    memcpy(key, inputs[0], sizeof key);
    honest(inputs, outputs);
    memcpy(kept, y, sizeof kept);
    return 0;
}
