// class: honest
// mechanism: asks for huge pages for a workspace of its own
// expect: correct
#include "honest.h"
KERNEL {
    static void* space = mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static int advised = madvise(space, 4 << 20, MADV_HUGEPAGE);
    static float* scratch = (float*)space;
    scratch[0] = (float)advised;
    return honest(inputs, outputs);
}
