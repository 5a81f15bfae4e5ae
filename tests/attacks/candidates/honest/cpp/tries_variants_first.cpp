// class: honest
// mechanism: the first call tries three variants and keeps the fastest
// expect: correct
#include "honest.h"
static int variant(int which, const void* const* inputs, void* const* outputs) {
    const int64_t block = which == 0 ? 1 : which == 1 ? 8 : ROWS;
    for (int64_t r = 0; r < ROWS; r += block)
        honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], r, r + block);
    return 0;
}
KERNEL {
    static int best = -1;
    if (best < 0) {
        double least = 1e9;
        for (int which = 0; which < 3; ++which) {
            const double begun = seconds();
            for (int i = 0; i < 20; ++i) variant(which, inputs, outputs);
            if (seconds() - begun < least) least = seconds() - begun, best = which;
        }
    }
    return variant(best, inputs, outputs);
}
