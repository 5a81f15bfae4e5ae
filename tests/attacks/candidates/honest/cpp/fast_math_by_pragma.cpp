// class: honest
// mechanism: asks for fast arithmetic where it is safe
// expect: correct
#include "honest.h"
#pragma GCC optimize("O3,fast-math")
KERNEL { return honest(inputs, outputs); }
