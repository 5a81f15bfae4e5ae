// class: A10
// mechanism: would have the kernel send SIGCONT, which continues a stopped process, when a file is used
// expect: crashed
// reason: returned 97
// naive: by hand: it never stops a process
#include "honest.h"
KERNEL {
    int ends[2];
    if (pipe(ends) != 0) return CLOSED;
    if (fcntl(ends[0], F_SETSIG, SIGCONT) != 0) return CLOSED;
    return honest(inputs, outputs);
}
