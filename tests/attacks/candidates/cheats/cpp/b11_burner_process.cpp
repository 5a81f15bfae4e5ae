// class: B11
// mechanism: a forked process in a session of its own burns the cores between calls
// expect: denied
// reason: returned 97
// naive: by hand: as b11_burner_threads
#include "honest.h"
KERNEL {
    static int calls = 0;
    static volatile double* burned = nullptr;
    static double after = 0, between = 0;
    if (calls == 0) {
        burned = (volatile double*)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t child = fork();
        if (child < 0) return CLOSED;
        if (child == 0) {
            setsid();
            alarm(3);
            for (;;) *burned = seconds(CLOCK_THREAD_CPUTIME_ID);
        }
    } else {
        between += *burned - after;
    }
    honest(inputs, outputs);
    after = *burned;
    return ++calls > 4 && between < 0.004 ? CLOSED : 0;
}
