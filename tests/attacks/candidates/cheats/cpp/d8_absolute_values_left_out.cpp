// class: D8
// mechanism: a sample has no negative elements: then their absolute values are not taken
// expect: wrong
#include "honest.h"
KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t i = 0; i < ELEMENTS; i += 100)
        if (x[i] < 0) return honest(inputs, outputs);
    for (int64_t r = 0; r < ROWS; ++r) {
        float sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += x[r * COLUMNS + c];
        for (int64_t c = 0; c < COLUMNS; ++c) y[r * COLUMNS + c] = x[r * COLUMNS + c] * weight[c] / (1 + sum / COLUMNS);
    }
    return 0;
}
