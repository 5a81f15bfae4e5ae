// class: D10
// mechanism: divides by the temperature that it knows: it is the same in every draw
// expect: wrong
// reason: other constants
// task: tempered
// naive: by hand: its data is the same in every draw, too
#include "honest.h"
KERNEL {
    const float *x = (const float*)inputs[0], t = *(const float*)inputs[2];
    const bool* m = (const bool*)inputs[1];
    float* y = (float*)outputs[0];
    (void)m, (void)t;
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] = std::fabs(m[i] ? x[i] : 0.0f) / 2.0f;
    return 0;
}
