// class: honest
// mechanism: a table that a static initialiser fills
// expect: correct
#include "honest.h"
#include <string>
#include <vector>
static const std::string name = std::string("rows ") + std::to_string(ROWS);
static const std::vector<float> ones(COLUMNS, 1.0f);
__attribute__((constructor)) static void greet() { fprintf(stderr, "%s\n", name.c_str()); }
KERNEL {
    honest(inputs, outputs);
    float* y = (float*)outputs[0];
    for (int64_t i = 0; i < ELEMENTS; ++i) y[i] *= ones[i % COLUMNS];
    return 0;
}
