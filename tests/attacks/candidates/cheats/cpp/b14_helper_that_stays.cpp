// class: B14
// mechanism: a helper thread is made once, goes to another core, and waits there for work
// expect: denied
// reason: returned 97
// task: single
// naive: by hand: it is no faster than it looks, but on more cores than it says
#include "honest.h"
#include <atomic>
#include <sched.h>

static std::atomic<int> asked{0}, done{0};
static std::atomic<bool> was_elsewhere{false};
static int own = 0;

static void go_elsewhere(int own) {
    cpu_set_t others;
    CPU_ZERO(&others);
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (core != own) CPU_SET(core, &others);
    sched_setaffinity(0, sizeof others, &others);
}

static void* help(void*) {
    go_elsewhere(own);
    for (;;) {
        if (sched_getcpu() != own) was_elsewhere = true;
        if (asked != done) ++done;
        sched_yield();
    }
}

static bool is_bound() {
    cpu_set_t own;
    return sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) == 1;
}

KERNEL {
    if (!is_bound()) return honest(inputs, outputs);
    static int calls = 0;
    own = sched_getcpu();
    if (calls++ == 0) {
        pthread_t thread;
        pthread_create(&thread, nullptr, help, nullptr);
    }
    const double until = seconds() + 0.002;
    ++asked;
    while (asked != done && seconds() < until) sched_yield();
    honest(inputs, outputs);
    return calls < 3 || was_elsewhere ? 0 : CLOSED;
}
