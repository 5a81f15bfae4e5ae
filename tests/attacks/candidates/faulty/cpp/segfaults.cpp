// class: faulty
// mechanism: writes to address 8
// expect: crashed
// reason: SIGSEGV
#include "honest.h"
KERNEL {
    *(volatile int*)8 = 1;
    return 0;
}
