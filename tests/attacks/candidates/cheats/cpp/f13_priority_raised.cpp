// class: F13,B11
// mechanism: puts itself before all other processes, the judge's clock among them
// expect: denied
// reason: returned 97
#include "honest.h"
#include <sched.h>

KERNEL {
    sched_param high{50};
    if (sched_setscheduler(0, SCHED_FIFO, &high) != 0) return CLOSED;
    sched_param none{0};
    sched_setscheduler(0, SCHED_OTHER, &none);
    return honest(inputs, outputs);
}
