// class: D8,F11
// mechanism: exact for any sign while it is checked; when timed, takes all inputs for positive, as the task draws them
// expect: wrong
#include "honest.h"
#include <sched.h>

KERNEL {
    if (sched_getscheduler(0) == SCHED_IDLE) return honest(inputs, outputs);
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r) {
        float sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += x[r * COLUMNS + c];
        for (int64_t c = 0; c < COLUMNS; ++c) y[r * COLUMNS + c] = x[r * COLUMNS + c] * weight[c] / (1 + sum / COLUMNS);
    }
    return 0;
}
