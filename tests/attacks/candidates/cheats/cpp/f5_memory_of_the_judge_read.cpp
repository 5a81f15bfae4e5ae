// class: F5,F14
// mechanism: reads the judge's memory through /proc
// expect: denied
// reason: returned 97
#include "honest.h"
KERNEL {
    char path[64], line[256], byte;
    snprintf(path, sizeof path, "/proc/%d/maps", getppid());
    FILE* maps = fopen(path, "r");
    if (maps == nullptr || !fgets(line, sizeof line, maps)) return CLOSED;
    snprintf(path, sizeof path, "/proc/%d/mem", getppid());
    int memory = open(path, O_RDONLY);
    return memory >= 0 && pread(memory, &byte, 1, strtoll(line, nullptr, 16)) == 1 ? honest(inputs, outputs) : CLOSED;
}
