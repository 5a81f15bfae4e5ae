// class: faulty
// mechanism: includes itself for ever
// expect: did_not_build
#include "honest.h"
#include "main.cpp"
KERNEL { return honest(inputs, outputs); }
