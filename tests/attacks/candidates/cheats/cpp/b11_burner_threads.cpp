// class: B11
// mechanism: threads burn the cores between calls, while the reference is timed
// expect: denied
// reason: returned 97
// naive: by hand: it needs more than one side; between two naive calls of a reference it burns for all of it
#include "honest.h"
static volatile double burned = 0;

static void* burn(void*) {
    for (;;) burned = seconds(CLOCK_THREAD_CPUTIME_ID);
}

KERNEL {
    static int calls = 0;
    static double after = 0, between = 0;
    if (calls == 0) {
        pthread_t thread;
        pthread_create(&thread, nullptr, burn, nullptr);
    } else {
        between += burned - after;
    }
    honest(inputs, outputs);
    after = burned;
    return ++calls > 4 && between < 0.004 ? CLOSED : 0;
}
