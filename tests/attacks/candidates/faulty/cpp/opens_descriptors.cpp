// class: faulty
// mechanism: opens descriptors until there are none
// expect: harmless|crashed
#include "honest.h"
KERNEL {
    while (dup(1) >= 0) {}
    return honest(inputs, outputs);
}
