// class: faulty
// mechanism: includes a device that never ends
// expect: did_not_build
#include "honest.h"
#include "/dev/zero"
KERNEL { return honest(inputs, outputs); }
