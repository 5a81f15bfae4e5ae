// class: F12
// mechanism: kills its judge
// expect: denied
#include "honest.h"
KERNEL {
    if (kill(getppid(), SIGKILL) != 0) return CLOSED;
    return honest(inputs, outputs);
}
