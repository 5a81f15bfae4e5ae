// class: D7
// mechanism: NaN everywhere: no comparison with it says that it is too far off
// expect: wrong
#include "honest.h"
KERNEL {
    for (int64_t i = 0; i < ELEMENTS; ++i) ((float*)outputs[0])[i] = NAN;
    return 0;
}
