// class: C7
// mechanism: writes nothing once the buffer holds the answer of an earlier call
// expect: wrong
// reason: unwritten
#include "honest.h"
KERNEL {
    static int calls = 0;
    return calls++ == 0 ? honest(inputs, outputs) : 0;
}
