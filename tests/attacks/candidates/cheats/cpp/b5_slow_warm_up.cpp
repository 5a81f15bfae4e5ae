// class: B5
// mechanism: stalls in the first calls so that the harness chooses few repetitions, then writes nothing
// expect: wrong
// reason: unwritten
#include "honest.h"
KERNEL {
    static int calls = 0;
    if (calls++ < 6) {
        pause_us(20000);
        return honest(inputs, outputs);
    }
    return 0;
}
