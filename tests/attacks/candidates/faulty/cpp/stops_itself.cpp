// class: faulty
// mechanism: stops its own process
// expect: timed_out|crashed|rejected
#include "honest.h"
KERNEL {
    raise(SIGSTOP);
    return honest(inputs, outputs);
}
