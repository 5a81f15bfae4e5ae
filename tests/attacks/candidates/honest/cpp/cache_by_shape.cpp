// class: honest
// mechanism: a plan is made per shape and kept
// expect: correct
#include "honest.h"
#include <map>
#include <utility>
KERNEL {
    static std::map<std::pair<int64_t, int64_t>, int64_t> plans;
    const int64_t rows = shapes[0][0], columns = shapes[0][1];
    int64_t& block = plans[{rows, columns}];
    if (block == 0) block = rows % 8 == 0 ? 8 : 1;
    for (int64_t r = 0; r < rows; r += block)
        honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], r, r + block);
    return 0;
}
