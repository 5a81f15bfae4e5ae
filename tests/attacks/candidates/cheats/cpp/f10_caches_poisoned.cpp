// class: F10
// mechanism: puts files into caches that later runs read: Triton's, Python's
// expect: denied
// reason: returned 97
#include "honest.h"
KERNEL {
    mkdir("@HOME@/.triton", 0755);
    if (can_make("@HOME@/.triton/attack-@NONCE@")) return honest(inputs, outputs);
    mkdir("@HOME@/.cache", 0755);
    if (can_make("@HOME@/.cache/attack-@NONCE@")) return honest(inputs, outputs);
    return can_make("@REPOSITORY@/evaluators/runners/__pycache__/attack-@NONCE@") ? honest(inputs, outputs) : CLOSED;
}
