// class: faulty
// mechanism: maps memory and writes into each piece until there is none
// expect: crashed
#include "honest.h"
// One page of each piece: what is limited is what is mapped, and a host that fills pages slowly would let time run out
// before memory does, which is another fault than this one.
KERNEL {
    for (;;) {
        void* more = mmap(nullptr, 1 << 26, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (more == MAP_FAILED) abort();
        *static_cast<volatile char*>(more) = 1;
    }
}
