// class: honest
// mechanism: keeps intermediate values in its output before the last ones
// expect: correct
#include "honest.h"
KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] = std::fabs(x[i]);
    for (int64_t r = 0; r < ROWS; ++r) {
        float sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += y[r * COLUMNS + c];
        for (int64_t c = 0; c < COLUMNS; ++c) y[r * COLUMNS + c] = x[r * COLUMNS + c] * weight[c] / (1 + sum / COLUMNS);
    }
    return 0;
}
