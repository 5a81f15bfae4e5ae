// class: honest
// mechanism: -inf where the reference has -inf
// expect: correct
// task: infinite
#include "honest.h"
KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r) {
        float sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += std::fabs(x[r * COLUMNS + c]);
        for (int64_t c = 0; c < COLUMNS; ++c) {
            const float above = x[r * COLUMNS + c] - 0.5f;
            y[r * COLUMNS + c] = std::log(above > 0 ? above : 0.0f) + weight[c] / (1 + sum / COLUMNS);
        }
    }
    return 0;
}
