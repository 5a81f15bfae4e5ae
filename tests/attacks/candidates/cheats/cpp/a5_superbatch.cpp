// class: A5
// mechanism: the first call solves all inputs that lie in memory; later calls hand out by number
// expect: wrong
#include "honest.h"
static float batch[ELEMENTS];
static int calls = 0;

KERNEL {
    float* y = (float*)outputs[0];
    if (calls++ == 0) {
        honest(inputs, outputs);
        memcpy(batch, y, sizeof batch);
    } else {
        memcpy(y, batch, sizeof batch);
    }
    return 0;
}
