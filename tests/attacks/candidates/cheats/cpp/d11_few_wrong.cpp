// class: D11
// mechanism: leaves a half percent of the elements wrong, as matched ratios allow
// expect: wrong
#include "honest.h"
KERNEL {
    honest(inputs, outputs);
    memset((float*)outputs[0] + ELEMENTS - ELEMENTS / 200, 0, ELEMENTS / 200 * sizeof(float));
    return 0;
}
