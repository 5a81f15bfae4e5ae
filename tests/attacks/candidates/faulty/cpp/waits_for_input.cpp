// class: faulty
// mechanism: a build and a call that read their standard input
// expect: harmless|crashed|timed_out
#include "honest.h"
KERNEL {
    int letter = getchar();
    return letter == EOF ? honest(inputs, outputs) : 1;
}
