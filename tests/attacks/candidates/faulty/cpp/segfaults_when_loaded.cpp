// class: faulty
// mechanism: a static initialiser writes to address 8
// expect: crashed
// reason: load
#include "honest.h"
__attribute__((constructor)) static void fall() { *(volatile int*)8 = 1; }
KERNEL { return honest(inputs, outputs); }
