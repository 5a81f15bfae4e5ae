// class: F14
// mechanism: process_vm_writev into the judge (one byte, the one that stands there)
// expect: denied
// reason: returned 97
#include "honest.h"
#include <sys/uio.h>

KERNEL {
    // The same byte is written that was read: a judge that lets this happen goes on unharmed.
    char path[64], line[512], byte;
    snprintf(path, sizeof path, "/proc/%d/maps", getppid());
    FILE* maps = fopen(path, "r");
    while (maps != nullptr && fgets(line, sizeof line, maps)) {
        if (!strstr(line, " rw-p ")) continue;
        iovec own{&byte, 1}, theirs{(void*)strtoll(line, nullptr, 16), 1};
        if (process_vm_readv(getppid(), &own, 1, &theirs, 1, 0) != 1) return CLOSED;
        return process_vm_writev(getppid(), &own, 1, &theirs, 1, 0) == 1 ? honest(inputs, outputs) : CLOSED;
    }
    return CLOSED;
}
