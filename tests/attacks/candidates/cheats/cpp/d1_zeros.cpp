// class: D1
// mechanism: zeros, where the outputs are so small that an absolute tolerance sees no difference
// expect: wrong
// task: tiny
#include "honest.h"
KERNEL {
    memset(outputs[0], 0, ELEMENTS * sizeof(double));
    return 0;
}
