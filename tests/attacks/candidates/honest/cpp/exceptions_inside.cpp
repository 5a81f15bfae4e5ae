// class: honest
// mechanism: throws and catches inside of a call
// expect: correct
#include "honest.h"
#include <stdexcept>
#include <string>
static int chosen(int64_t columns) {
    if (columns == COLUMNS) throw std::runtime_error("a known shape");
    return 0;
}
KERNEL {
    try {
        return chosen(shapes[0][1]) + 1;
    } catch (const std::exception&) {
        return honest(inputs, outputs);
    }
}
