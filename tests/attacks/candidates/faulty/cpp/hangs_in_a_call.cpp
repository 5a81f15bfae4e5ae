// class: faulty
// mechanism: waits for ever in the first call
// expect: timed_out
// reason: first call
#include "honest.h"
KERNEL {
    for (;;) pause();
}
