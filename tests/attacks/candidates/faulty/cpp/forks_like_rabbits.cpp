// class: faulty
// mechanism: children that have children, 200 at most, each for three seconds
// expect: timed_out|crashed|harmless
#include "honest.h"
KERNEL {
    static volatile int* born =
        (volatile int*)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    while (__sync_fetch_and_add((int*)born, 1) < 200) {
        pid_t child = fork();
        if (child < 0) return CLOSED;
        if (child == 0) {
            setsid();
            alarm(3);
        }
    }
    for (;;) pause();
}
