// class: honest
// mechanism: reads how many cores and which caches there are
// expect: correct
#include "honest.h"
KERNEL {
    static long cores = sysconf(_SC_NPROCESSORS_ONLN);
    static FILE* about = fopen("/proc/cpuinfo", "r");
    if (about != nullptr) fclose(about), about = nullptr;
    return cores > 0 ? honest(inputs, outputs) : 1;
}
