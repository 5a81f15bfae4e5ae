// class: honest
// mechanism: mean and variance in one pass, each value as a step from the mean so far (Welford 1962)
// expect: correct
// task: centred
#include "honest.h"
KERNEL {
    const float* x = (const float*)inputs[0];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r, x += COLUMNS, y += COLUMNS) {
        float mean = 0, squares = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) {
            const float step = x[c] - mean;
            mean += step / (c + 1);
            squares += step * (x[c] - mean);
        }
        for (int64_t c = 0; c < COLUMNS; ++c) y[c] = (x[c] - mean) / std::sqrt(squares / COLUMNS + 1e-5f);
    }
    return 0;
}
