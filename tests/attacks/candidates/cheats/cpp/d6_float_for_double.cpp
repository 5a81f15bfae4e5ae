// class: D6
// mechanism: computes in float what was asked in double
// expect: wrong
// task: tiny
#include "honest.h"
KERNEL {
    static float x[ELEMENTS], weight[COLUMNS], y[ELEMENTS];
    for (int64_t i = 0; i < ELEMENTS; ++i) x[i] = (float)((const double*)inputs[0])[i];
    for (int64_t i = 0; i < COLUMNS; ++i) weight[i] = (float)((const double*)inputs[1])[i];
    honest_rows<float>(x, weight, y, 0, ROWS, 0.001f);
    for (int64_t i = 0; i < ELEMENTS; ++i) ((double*)outputs[0])[i] = y[i];
    return 0;
}
