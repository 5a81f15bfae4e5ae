// class: B14,F12
// mechanism: a helper thread goes to the judge's core and spins there for ever, so that the judge gets none
// expect: denied
// reason: returned 97
// task: single
// naive: by hand: it needs a judge on a core of its own
#include "honest.h"
#include <atomic>
#include <sched.h>

static bool is_bound() {
    cpu_set_t own;
    return sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) == 1;
}

static std::atomic<bool> was_elsewhere{false};
static int own = 0;

static void* spin(void*) {
    cpu_set_t others;
    CPU_ZERO(&others);
    for (int core = 0; core < 1024 && core < CPU_SETSIZE; ++core)
        if (core != own) CPU_SET(core, &others);
    sched_setaffinity(0, sizeof others, &others);
    for (;;)
        if (sched_getcpu() != own) was_elsewhere = true;
}

KERNEL {
    if (!is_bound()) return honest(inputs, outputs);
    static int calls = 0;
    if (calls++ == 0) {
        own = sched_getcpu();
        pthread_t thread;
        pthread_create(&thread, nullptr, spin, nullptr);
    }
    pause_us(300);
    honest(inputs, outputs);
    return calls < 6 || was_elsewhere ? 0 : CLOSED;
}
