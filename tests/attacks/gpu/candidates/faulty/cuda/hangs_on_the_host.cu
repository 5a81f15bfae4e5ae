// class: faulty
// mechanism: waits for ever before it launches
// expect: timed_out
#include "honest.cuh"
KERNEL {
    for (;;) pause();
}
