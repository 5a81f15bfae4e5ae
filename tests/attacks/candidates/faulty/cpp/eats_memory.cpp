// class: faulty
// mechanism: allocates and touches memory until there is none
// expect: crashed|timed_out
#include "honest.h"
KERNEL {
    for (;;) {
        char* more = (char*)malloc(1 << 26);
        if (more == nullptr) abort();
        memset(more, 1, 1 << 26);
    }
}
