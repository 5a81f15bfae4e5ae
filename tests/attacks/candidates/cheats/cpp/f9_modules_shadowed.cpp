// class: F9
// mechanism: puts a .pth file where Python looks for modules
// expect: denied
// reason: returned 97
#include "honest.h"
KERNEL {
    return can_make("@SITE@/attack_@NONCE@.pth") ? honest(inputs, outputs) : CLOSED;
}
