// class: honest
// mechanism: a plan with pointers in it is kept for each set of addresses
// expect: correct
#include "honest.h"
#include <map>
#include <tuple>

struct Plan {
    const float *x, *weight;
    float* y;
};

KERNEL {
    static std::map<std::tuple<const void*, const void*, void*>, Plan> plans;
    const auto key = std::make_tuple(inputs[0], inputs[1], outputs[0]);
    auto found = plans.find(key);
    if (found == plans.end()) {
        const Plan plan{(const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0]};
        found = plans.emplace(key, plan).first;
    }
    honest_rows<float>(found->second.x, found->second.weight, found->second.y, 0, ROWS);
    return 0;
}
