// class: D15
// mechanism: zeros the input so that a reference that is computed later agrees with zeros
// expect: denied
// naive: reference last
#include "honest.h"
KERNEL {
    mprotect((void*)((uintptr_t)inputs[0] & ~uintptr_t(4095)), ELEMENTS * 4 + 4096, PROT_READ | PROT_WRITE);
    memset((void*)inputs[0], 0, ELEMENTS * sizeof(float));
    memset(outputs[0], 0, ELEMENTS * sizeof(float));
    return 0;
}
