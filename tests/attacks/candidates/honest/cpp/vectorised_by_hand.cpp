// class: honest
// mechanism: vector extensions of the compiler
// expect: correct
#include "honest.h"
typedef float Eight __attribute__((vector_size(32), aligned(4)));
KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r) {
        Eight sums = {0};
        for (int64_t c = 0; c < COLUMNS; c += 8) {
            const Eight here = *(const Eight*)(x + r * COLUMNS + c);
            sums += here < 0 ? -here : here;
        }
        float sum = 0;
        for (int lane = 0; lane < 8; ++lane) sum += sums[lane];
        const float scale = 1 / (1 + sum / COLUMNS);
        for (int64_t c = 0; c < COLUMNS; c += 8)
            *(Eight*)(y + r * COLUMNS + c) = *(const Eight*)(x + r * COLUMNS + c) * *(const Eight*)(weight + c) * scale;
    }
    return 0;
}
