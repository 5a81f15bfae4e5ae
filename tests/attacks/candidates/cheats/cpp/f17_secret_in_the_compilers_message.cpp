// class: F17
// mechanism: includes a file that is no C++, for the compiler to quote it in its errors
// expect: did_not_build
// naive: by hand: as f17_secret_included
#include "honest.h"
#include "@PROSE@"

KERNEL {
    return honest(inputs, outputs);
}
