// class: D2
// mechanism: the outputs' mean everywhere
// expect: wrong
// task: tiny
#include "honest.h"
KERNEL {
    for (int64_t i = 0; i < ELEMENTS; ++i) ((double*)outputs[0])[i] = 0.000333;
    return 0;
}
