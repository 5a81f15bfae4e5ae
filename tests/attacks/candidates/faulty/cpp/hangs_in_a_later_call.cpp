// class: faulty
// mechanism: waits for ever in the fourth call
// expect: timed_out
// reason: call
#include "honest.h"
KERNEL {
    static int calls = 0;
    while (calls == 3) pause();
    ++calls;
    return honest(inputs, outputs);
}
