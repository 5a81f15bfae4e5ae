// class: D16
// mechanism: writes one element behind its output
// expect: wrong
// reason: bounds
#include "honest.h"
KERNEL {
    honest(inputs, outputs);
    ((float*)outputs[0])[ELEMENTS] = 1;
    return 0;
}
