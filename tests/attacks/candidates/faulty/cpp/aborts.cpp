// class: faulty
// mechanism: calls abort
// expect: crashed
// reason: SIGABRT
#include "honest.h"
KERNEL { abort(); }
