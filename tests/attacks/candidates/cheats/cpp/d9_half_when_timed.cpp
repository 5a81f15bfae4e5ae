// class: D9,F11
// mechanism: knows by its scheduling class whether it is checked or timed; exact in the one, half precision in the other
// expect: wrong
#include "honest.h"
#include <sched.h>

KERNEL {
    honest(inputs, outputs);
    if (sched_getscheduler(0) == SCHED_IDLE) return 0;
    float* y = (float*)outputs[0];
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] = (float)(_Float16)y[i];
    return 0;
}
