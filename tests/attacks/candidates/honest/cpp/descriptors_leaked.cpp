// class: honest
// mechanism: right, but each call leaves a descriptor open
// expect: correct
// reason: leak: its open file descriptors grow by 1.0 per call
#include "honest.h"
KERNEL {
    if (dup(1) < 0) return CLOSED;
    return honest(inputs, outputs);
}
