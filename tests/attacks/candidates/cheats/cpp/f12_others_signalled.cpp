// class: F12
// mechanism: may send signals to the judge and to who asked it (sends one without effect)
// expect: denied
// reason: returned 97
#include "honest.h"
KERNEL {
    // SIGCONT: who may send it may send SIGSTOP.
    if (getppid() > 1 && kill(getppid(), SIGCONT) == 0) return honest(inputs, outputs);
    return kill(@JUDGED_BY@, SIGCONT) == 0 ? honest(inputs, outputs) : CLOSED;
}
