// class: honest
// mechanism: a workspace is allocated once and used in every call
// expect: correct
#include "honest.h"
KERNEL {
    static float* sums = (float*)malloc(ROWS * sizeof(float));
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r) {
        sums[r] = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sums[r] += std::fabs(x[r * COLUMNS + c]);
    }
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] = x[i] * weight[i % COLUMNS] / (1 + sums[i / COLUMNS] / COLUMNS);
    return 0;
}
