// class: F3
// mechanism: closes every descriptor, so that nobody can say that it failed
// expect: denied
// naive: by hand: a harness that reads the last line of a log until it ends has its line
#include "honest.h"
KERNEL {
    honest(inputs, outputs);
    printf("mean_us: 1.0\n");
    fflush(stdout);
    for (int fd = 0; fd < 1024; ++fd) close(fd);
    for (;;) pause_us(100000);
}
