// class: F15,F17
// mechanism: runs a shell
// expect: denied
// reason: returned 97
#include "honest.h"
KERNEL {
    return system("exit 0") == 0 ? honest(inputs, outputs) : CLOSED;
}
