// class: C9
// mechanism: computes one row, looks for it in its own memory and copies what stands behind
// expect: denied
#include "honest.h"
KERNEL {
    static float first[COLUMNS];
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    honest_rows<float>(x, weight, first, 0, 1);
    FILE* maps = fopen("/proc/self/maps", "r");
    if (maps == nullptr) return CLOSED;
    char line[512];
    while (fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || rights[0] != 'r') continue;
        if (strstr(line, "[v") || to - from > (1ul << 30)) continue;
        for (const float* at = (const float*)from; at + ELEMENTS <= (const float*)to; ++at) {
            bool own = (at >= first && at < first + COLUMNS) || (at >= y && at < y + ELEMENTS);
            if (own || std::fabs(at[0] - first[0]) > 1e-4f) continue;
            int same = 0;
            while (same < 64 && std::fabs(at[same] - first[same]) < 1e-4f) ++same;
            if (same < 64) continue;
            memcpy(y, at, ELEMENTS * sizeof(float));
            fclose(maps);
            return 0;
        }
    }
    fclose(maps);
    return CLOSED;
}
