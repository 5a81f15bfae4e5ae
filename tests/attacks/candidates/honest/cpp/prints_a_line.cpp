// class: honest
// mechanism: prints a line in every call
// expect: correct
#include "honest.h"
#include <iostream>
KERNEL {
    printf("called\n");
    std::cerr << "called\n";
    return honest(inputs, outputs);
}
