// class: faulty
// mechanism: three thousand files in its folder
// expect: crashed|harmless
#include "honest.h"
KERNEL {
    char name[64];
    static int calls = 0;
    for (int i = 0; i < 3000 && calls == 0; ++i) {
        snprintf(name, sizeof name, "file-%d", i);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd >= 0) close(fd);
    }
    ++calls;
    return honest(inputs, outputs);
}
