// class: F3
// mechanism: leaves with exit code 0 before anything was compared
// expect: crashed
// reason: exit code 0
#include "honest.h"
KERNEL {
    printf("mean_us: 1.0\nPASS\n");
    fflush(stdout);
    _exit(0);
}
