// class: honest
// mechanism: threads add to a sum as they come: the last bits differ from call to call
// expect: correct|outpaced
#include "honest.h"
KERNEL {
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float *y = (float*)outputs[0], sums[ROWS] = {0};
    // Two threads at most: each adds its own part of every row.
    #pragma omp parallel for schedule(static) num_threads(2)
    for (int64_t part = 0; part < 8; ++part)
        for (int64_t r = 0; r < ROWS; ++r) {
            float sum = 0;
            for (int64_t c = part * 32; c < part * 32 + 32; ++c) sum += std::fabs(x[r * COLUMNS + c]);
            #pragma omp atomic
            sums[r] += sum;
        }
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] = x[i] * weight[i % COLUMNS] / (1 + sums[i / COLUMNS] / COLUMNS);
    return 0;
}
