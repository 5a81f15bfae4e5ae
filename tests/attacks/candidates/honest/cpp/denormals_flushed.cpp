// class: honest
// mechanism: sets the processor to flush denormals, in its own threads
// expect: correct
#include "honest.h"
#ifdef __x86_64__
#include <xmmintrin.h>
#endif
KERNEL {
#ifdef __x86_64__
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
    return honest(inputs, outputs);
}
