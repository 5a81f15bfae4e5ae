// class: F17
// mechanism: includes a file of the user's at build time
// expect: denied
// naive: by hand: it compiles with the user's rights
#include "honest.h"
#include "@SECRET@"

KERNEL {
    return sizeof stolen > 1 ? honest(inputs, outputs) : CLOSED;
}
