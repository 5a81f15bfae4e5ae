// class: faulty
// mechanism: writes 8 GiB into its folder
// expect: crashed|harmless
#include "honest.h"
KERNEL {
    static char block[1 << 20];
    int fd = open("huge", O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 8192 && fd >= 0; ++i)
        if (write(fd, block, sizeof block) < 0) return CLOSED;
    return honest(inputs, outputs);
}
