// class: C12,F11
// mechanism: keys what it keeps by the address of one tensor, but only where it is timed
// expect: wrong
// naive: fresh data
#include "honest.h"
#include <sched.h>

KERNEL {
    if (sched_getscheduler(0) == SCHED_IDLE) return honest(inputs, outputs);
    static const void* keys[16];
    static void* kept[16];
    int at = 0;
    while (keys[at] && keys[at] != inputs[0]) ++at;
    if (!keys[at]) keys[at] = inputs[0], kept[at] = outputs[0];
    return honest(inputs, &kept[at]);
}
