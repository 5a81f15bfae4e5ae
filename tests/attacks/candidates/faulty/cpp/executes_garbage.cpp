// class: faulty
// mechanism: jumps into its data
// expect: crashed
// reason: SIG(SEGV|ILL)
#include "honest.h"
static const unsigned char nonsense[] = {0x0f, 0x0b, 0x0f, 0x0b};
KERNEL {
    return ((int (*)())(void*)nonsense)();
}
