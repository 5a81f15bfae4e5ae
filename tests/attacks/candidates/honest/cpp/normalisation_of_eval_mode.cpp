// class: honest
// mechanism: reads what a normalisation has seen in training, which is another one from call to call
// expect: correct
// task: normed
#include "honest.h"
KERNEL {
    const float* x = (const float*)inputs[0];
    const float *weight = (const float*)inputs[1], *gain = (const float*)inputs[2], *bias = (const float*)inputs[3];
    const float *mean = (const float*)inputs[4], *variance = (const float*)inputs[5];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r, x += COLUMNS, y += COLUMNS) {
        float sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += std::fabs(x[c]);
        const float scale = 1 / (1 + sum / COLUMNS);
        for (int64_t c = 0; c < COLUMNS; ++c) {
            const float normed = (x[c] - mean[c]) / std::sqrt(variance[c] + 1e-5f) * gain[c] + bias[c];
            y[c] = normed * weight[c] * scale;
        }
    }
    return 0;
}
