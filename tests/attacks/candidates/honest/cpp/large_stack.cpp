// class: honest
// mechanism: two megabytes on the stack
// expect: correct
#include "honest.h"
KERNEL {
    volatile char large[2 << 20];
    large[0] = large[sizeof large - 1] = 1;
    return honest(inputs, outputs) + large[0] - 1;
}
