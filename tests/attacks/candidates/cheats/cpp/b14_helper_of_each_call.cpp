// class: B14
// mechanism: a helper thread of each call moves to another core and does half of the work there
// expect: denied
// reason: returned 97
// task: single
// naive: by hand: it is no faster than it looks, but on more cores than it says
#include "honest.h"
#include <atomic>
#include <sched.h>
#include <thread>

static bool is_bound() {
    cpu_set_t own;
    return sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) == 1;
}
static void go_elsewhere(int own) {
    cpu_set_t others;
    CPU_ZERO(&others);
    for (int core = 0; core < CPU_SETSIZE; ++core)
        if (core != own) CPU_SET(core, &others);
    sched_setaffinity(0, sizeof others, &others);
}

KERNEL {
    if (!is_bound()) return honest(inputs, outputs);
    const float *x = (const float*)inputs[0], *weight = (const float*)inputs[1];
    float* y = (float*)outputs[0];
    const int own = sched_getcpu();
    std::atomic<bool> was_elsewhere{false};
    std::thread helper([&] {
        go_elsewhere(own);
        const double until = seconds() + 0.002;
        while (seconds() < until && !was_elsewhere) was_elsewhere = sched_getcpu() != own;
        honest_rows(x, weight, y, ROWS / 2, ROWS);
    });
    honest_rows(x, weight, y, 0, ROWS / 2);
    helper.join();
    return was_elsewhere ? 0 : CLOSED;
}
