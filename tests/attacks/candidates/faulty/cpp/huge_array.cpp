// class: faulty
// mechanism: a gigabyte of initialised data
// expect: did_not_build|crashed
#include "honest.h"
static char data[1 << 30] = {1};
KERNEL { return data[outputs != nullptr] + honest(inputs, outputs); }
