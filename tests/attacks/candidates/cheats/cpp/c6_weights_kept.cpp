// class: C6
// mechanism: parameters are packed on the first call and never looked at again
// expect: wrong
// naive: same data
#include "honest.h"
KERNEL {
    static float packed[COLUMNS];
    static int calls = 0;
    if (calls++ == 0) memcpy(packed, inputs[1], sizeof packed);
    const void* own[2] = {inputs[0], packed};
    return honest(own, outputs);
}
