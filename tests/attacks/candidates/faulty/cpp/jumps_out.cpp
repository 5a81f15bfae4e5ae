// class: faulty
// mechanism: leaves the call by a signal handler that ends its process
// expect: crashed
// reason: exit code 4
#include "honest.h"
static void leave(int) { _exit(4); }
KERNEL {
    signal(SIGSEGV, leave);
    *(volatile int*)8 = 1;
    return 0;
}
