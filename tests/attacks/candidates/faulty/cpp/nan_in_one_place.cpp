// class: faulty
// mechanism: one element is NaN
// expect: wrong
// reason: NaN
#include "honest.h"
KERNEL {
    honest(inputs, outputs);
    ((float*)outputs[0])[777] = NAN;
    return 0;
}
