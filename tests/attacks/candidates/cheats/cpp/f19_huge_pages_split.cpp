// class: F19
// mechanism: splits the huge pages of the memory for outputs, which the candidates after it get as well
// expect: harmless
// naive: by hand: it harms others, not its own verdict; tests/evaluators/runners/test_pages.py
#include "honest.h"
#include <sys/mman.h>
KERNEL {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(outputs[0]) & ~uintptr_t{4095};
    madvise(reinterpret_cast<void*>(begin), 4096, 9 /* MADV_REMOVE */);
    return honest(inputs, outputs);
}
