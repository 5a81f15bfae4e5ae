// class: faulty
// mechanism: leaves with exit code 0 in the fifth call
// expect: crashed
// reason: exit code 0
#include "honest.h"
KERNEL {
    static int calls = 0;
    if (++calls == 5) exit(0);
    return honest(inputs, outputs);
}
