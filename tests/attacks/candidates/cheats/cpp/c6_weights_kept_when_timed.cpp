// class: C6,F11
// mechanism: looks at its parameters while it is checked; when timed, packs them once and never looks again
// expect: wrong
// naive: same data
#include "honest.h"
#include <sched.h>

KERNEL {
    static float packed[COLUMNS];
    static int timed_calls = 0;
    if (sched_getscheduler(0) == SCHED_IDLE) return honest(inputs, outputs);
    if (timed_calls++ == 0) memcpy(packed, inputs[1], sizeof packed);
    const void* own[2] = {inputs[0], packed};
    return honest(own, outputs);
}
