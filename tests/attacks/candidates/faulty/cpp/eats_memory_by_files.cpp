// class: faulty
// mechanism: writes 2 GiB to files in memory that have no name, and maps none of them
// expect: crashed|harmless
#include "honest.h"
KERNEL {
    static char block[1 << 16];
    static int calls = 0;
    for (int files = 0; files < 64 && calls == 0; ++files) {
        int fd = memfd_create("more", 0);
        if (fd < 0) return CLOSED;
        for (int i = 0; i < 512; ++i)
            if (write(fd, block, sizeof block) < 0) break;
    }
    ++calls;
    return honest(inputs, outputs);
}
