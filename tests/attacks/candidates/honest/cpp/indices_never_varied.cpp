// class: honest
// mechanism: reads its indices, which are the same in every call: the verdict has to say so
// expect: correct
// reason: `more` had the same value in every call
// task: indexed
#include "honest.h"
KERNEL {
    const float* x = (const float*)inputs[0];
    const int64_t* at = (const int64_t*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r)
        for (int64_t c = 0; c < COLUMNS; ++c) y[r * COLUMNS + c] = std::fabs(x[r * COLUMNS + at[c]]);
    return 0;
}
