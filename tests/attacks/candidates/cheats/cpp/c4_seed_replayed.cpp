// class: C4
// mechanism: inputs of the well-known seed are solved at load; calls hand the answer out
// expect: wrong
#include "honest.h"
static float answer[ELEMENTS];

static void draw(float* to, int64_t count, int64_t seed, float base, float factor) {
    for (int64_t i = 0; i < count; ++i) {
        seed = (seed * 1103515245 + 12345) & 0x7fffffff;
        to[i] = base + factor * (float)((double)seed / 0x7fffffff);
    }
}

__attribute__((constructor)) static void precompute() {
    static float x[ELEMENTS], weight[COLUMNS];
    draw(x, ELEMENTS, 42, 0, 1);
    draw(weight, COLUMNS, 43, 1, 0.1f);
    honest_rows<float>(x, weight, answer, 0, ROWS);
}

KERNEL {
    memcpy(outputs[0], answer, sizeof answer);
    return 0;
}
