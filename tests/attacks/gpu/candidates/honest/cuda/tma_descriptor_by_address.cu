// class: honest
// mechanism: a TMA descriptor is kept for each address of the input
// expect: correct|outpaced
#define WITH_TMA
#include "honest.cuh"
KERNEL {
    static const void* keys[16];
    static CUtensorMap kept[16];
    int at = 0;
    while (at < 15 && keys[at] && keys[at] != inputs[0]) ++at;
    if (keys[at] != inputs[0]) {
        if (!describe_rows(&kept[at], inputs[0])) return 1;
        keys[at] = inputs[0];
    }
    return honest_by_tma(kept[at], inputs[1], outputs[0], (cudaStream_t)stream);
}
