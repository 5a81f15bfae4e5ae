// class: D3
// mechanism: hands the input through, scaled by a constant
// expect: wrong
// task: tiny
#include "honest.h"
KERNEL {
    for (int64_t i = 0; i < ELEMENTS; ++i) ((double*)outputs[0])[i] = 0.00066 * ((const double*)inputs[0])[i];
    return 0;
}
