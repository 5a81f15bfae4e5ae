// class: F14
// mechanism: attaches to the judge by ptrace
// expect: denied
// reason: returned 97
#include "honest.h"
#include <sys/ptrace.h>

KERNEL {
    if (ptrace(PTRACE_SEIZE, getppid(), nullptr, nullptr) != 0) return CLOSED;
    ptrace(PTRACE_INTERRUPT, getppid(), nullptr, nullptr);
    waitpid(getppid(), nullptr, __WALL);
    ptrace(PTRACE_DETACH, getppid(), nullptr, nullptr);
    return honest(inputs, outputs);
}
