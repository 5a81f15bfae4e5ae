// class: D14
// mechanism: skips the last columns after the first call: the buffer holds the right values
// expect: wrong
// reason: unwritten|tail
#include "honest.h"
KERNEL {
    static int calls = 0;
    if (calls++ == 0) return honest(inputs, outputs);
    static float whole[ELEMENTS];
    void* own[1] = {whole};
    honest(inputs, own);
    for (int64_t r = 0; r < ROWS; ++r)
        memcpy((float*)outputs[0] + r * COLUMNS, whole + r * COLUMNS, (COLUMNS - 7) * sizeof(float));
    return 0;
}
