// class: honest
// mechanism: OpenMP threads
// expect: correct
#include "honest.h"
KERNEL {
    #pragma omp parallel for
    for (int64_t r = 0; r < ROWS; ++r)
        honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], r, r + 1);
    return 0;
}
