// class: honest
// mechanism: the variance of what is left once the mean is taken off
// expect: correct
// task: centred
#include "honest.h"
KERNEL {
    const float* x = (const float*)inputs[0];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r, x += COLUMNS, y += COLUMNS) {
        float sum = 0, squares = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += x[c];
        const float mean = sum / COLUMNS;
        for (int64_t c = 0; c < COLUMNS; ++c) squares += (x[c] - mean) * (x[c] - mean);
        for (int64_t c = 0; c < COLUMNS; ++c) y[c] = (x[c] - mean) / std::sqrt(squares / COLUMNS + 1e-5f);
    }
    return 0;
}
