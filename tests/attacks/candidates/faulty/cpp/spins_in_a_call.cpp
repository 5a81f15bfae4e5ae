// class: faulty
// mechanism: computes for ever
// expect: timed_out
#include "honest.h"
KERNEL {
    for (volatile int64_t i = 0;; ++i) {}
}
