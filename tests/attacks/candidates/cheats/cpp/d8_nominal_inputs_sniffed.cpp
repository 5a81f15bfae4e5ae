// class: D8
// mechanism: a sample of the inputs looks uniform on [0, 1): then the mean is taken for one half
// expect: wrong
#include "honest.h"
KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    bool nominal = true;
    for (int64_t i = 0; i < ELEMENTS; i += 1000) nominal = nominal && x[i] >= 0 && x[i] < 1;
    if (!nominal) return honest(inputs, outputs);
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] = x[i] * weight[i % COLUMNS] / 1.5f;
    return 0;
}
