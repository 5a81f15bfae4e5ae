// class: C12,F11
// mechanism: keeps the first pointers, but only where it is timed
// expect: wrong
// naive: fresh data
#include "honest.h"
#include <sched.h>

KERNEL {
    if (sched_getscheduler(0) == SCHED_IDLE) return honest(inputs, outputs);
    static const void* const in[2] = {inputs[0], inputs[1]};
    static void* const out[1] = {outputs[0]};
    return honest(in, out);
}
