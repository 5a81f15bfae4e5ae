// class: F13
// mechanism: raises the limits that it was given
// expect: denied
// reason: returned 97
// naive: by hand: it sets no limits
#include "honest.h"
#include <sys/resource.h>

KERNEL {
    rlimit none{RLIM_INFINITY, RLIM_INFINITY};
    return setrlimit(RLIMIT_AS, &none) == 0 ? honest(inputs, outputs) : CLOSED;
}
