// class: faulty
// mechanism: recurses without end
// expect: crashed
// reason: SIGSEGV
#include "honest.h"
static int deeper(volatile char* above) {
    volatile char here[4096];
    here[0] = above[0];
    return deeper(here) + here[1];
}
KERNEL {
    volatile char first[1] = {0};
    return deeper(first);
}
