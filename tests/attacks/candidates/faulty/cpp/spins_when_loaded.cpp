// class: faulty
// mechanism: a static initialiser that never ends
// expect: timed_out
// reason: load
#include "honest.h"
__attribute__((constructor)) static void spin() {
    for (volatile int64_t i = 0;; ++i) {}
}
KERNEL { return honest(inputs, outputs); }
