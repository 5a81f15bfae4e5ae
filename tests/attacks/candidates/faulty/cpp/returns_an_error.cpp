// class: faulty
// mechanism: returns 3
// expect: crashed
// reason: returned 3
#include "honest.h"
KERNEL { return 3; }
