// class: D6
// mechanism: adds up in bfloat16
// expect: wrong
#include "honest.h"
static float bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
    memcpy(&value, &bits, 4);
    return value;
}

KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    for (int64_t r = 0; r < ROWS; ++r) {
        // Pairwise, as a good kernel would: what is lost is the precision, not the algorithm.
        float part[COLUMNS];
        for (int64_t c = 0; c < COLUMNS; ++c) part[c] = bf16(std::fabs(x[r * COLUMNS + c]));
        for (int64_t n = COLUMNS / 2; n > 0; n /= 2)
            for (int64_t c = 0; c < n; ++c) part[c] = bf16(part[c] + part[c + n]);
        const float scale = 1 / (1 + part[0] / COLUMNS);
        for (int64_t c = 0; c < COLUMNS; ++c) y[r * COLUMNS + c] = x[r * COLUMNS + c] * weight[c] * scale;
    }
    return 0;
}
