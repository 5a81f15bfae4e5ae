// class: faulty
// mechanism: an integer division by zero
// expect: crashed
// reason: SIGFPE
#include "honest.h"
KERNEL {
    volatile int none = 0;
    return honest(inputs, outputs) + 7 / none;
}
