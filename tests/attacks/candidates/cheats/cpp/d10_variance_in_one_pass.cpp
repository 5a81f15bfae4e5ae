// class: D10
// mechanism: the variance as the difference of two means, which rounding takes away where the mean is large
// expect: wrong
// reason: far (above|below) zero
// task: centred
// naive: by hand: its data lies around zero
#include "honest.h"
KERNEL {
    const float* x = (const float*)inputs[0];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r, x += COLUMNS, y += COLUMNS) {
        float sum = 0, squares = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += x[c], squares += x[c] * x[c];
        const float mean = sum / COLUMNS, variance = std::fmax(squares / COLUMNS - mean * mean, 0.0f);
        for (int64_t c = 0; c < COLUMNS; ++c) y[c] = (x[c] - mean) / std::sqrt(variance + 1e-5f);
    }
    return 0;
}
