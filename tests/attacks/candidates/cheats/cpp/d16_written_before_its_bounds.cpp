// class: D16
// mechanism: writes one element before its output
// expect: wrong
// reason: bounds
#include "honest.h"
KERNEL {
    honest(inputs, outputs);
    ((float*)outputs[0])[-1] = 1;
    return 0;
}
