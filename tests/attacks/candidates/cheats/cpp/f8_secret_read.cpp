// class: F8
// mechanism: reads a file of the user's that only the user may read
// expect: denied
// reason: returned 97
#include "honest.h"
KERNEL {
    return can_read("@SECRET@") ? honest(inputs, outputs) : CLOSED;
}
