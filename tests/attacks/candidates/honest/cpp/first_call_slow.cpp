// class: honest
// mechanism: the first call takes a fifth of a second
// expect: correct
#include "honest.h"
KERNEL {
    static int calls = 0;
    if (calls++ == 0) pause_us(200000);
    return honest(inputs, outputs);
}
