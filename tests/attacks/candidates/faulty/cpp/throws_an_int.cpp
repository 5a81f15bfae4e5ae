// class: faulty
// mechanism: throws what is no exception
// expect: crashed
// reason: SIGABRT
#include "honest.h"
KERNEL { throw 7; }
