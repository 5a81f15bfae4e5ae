// class: D10
// mechanism: a softmax whose maximum starts at 0, and stays there where everything lies far below
// expect: wrong
// reason: far below zero
// task: soft
// naive: by hand: its data lies around zero
#include "honest.h"
KERNEL {
    const float* x = (const float*)inputs[0];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r, x += COLUMNS, y += COLUMNS) {
        float top = 0, sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) top = std::fmax(top, x[c]);
        for (int64_t c = 0; c < COLUMNS; ++c) sum += y[c] = std::exp(x[c] - top);
        for (int64_t c = 0; c < COLUMNS; ++c) y[c] /= sum;
    }
    return 0;
}
