// class: A2
// mechanism: returns at once; a thread that spins does the work while the answer travels
// expect: denied
#include "honest.h"
static volatile int wanted = 0;
static const void* const* in;
static void* const* out;

static void* work(void*) {
    for (int done = 0;;) {
        while (wanted == done) {}
        done = wanted;
        // Work: what the clock on the wall does while the process is stopped is none.
        const clockid_t own = CLOCK_THREAD_CPUTIME_ID;
        for (const double begun = seconds(own); seconds(own) < begun + 300e-6;) {}
        honest(in, out);
    }
}

KERNEL {
    static bool started = false;
    if (!started) {
        in = inputs, out = outputs;
        pthread_t thread;
        started = pthread_create(&thread, nullptr, work, nullptr) == 0;
    }
    wanted = wanted + 1;
    return 0;
}
