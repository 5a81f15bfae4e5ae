// class: A10,B11
// mechanism: a timer whose signal is SIGCONT continues it between its calls; a thread solves inputs as soon as they are laid
// expect: crashed
// reason: returned 97
// naive: by hand: it never stops a process
#include "honest.h"
#include <sched.h>

static const void* in[2];
static float solved[ELEMENTS], x[ELEMENTS], weight[COLUMNS];
static volatile bool ready = false;

// With a handler the signal is not ignored, and the timer keeps its interval.
static void go_on(int) {}

static bool is_known() { return memcmp(x, in[0], sizeof x) == 0 && memcmp(weight, in[1], sizeof weight) == 0; }

static void burn() {
    for (const double begun = seconds(CLOCK_THREAD_CPUTIME_ID); seconds(CLOCK_THREAD_CPUTIME_ID) < begun + 3e-3;) {}
}

static void* watch(void*) {
    for (;;) {
        if (is_known()) continue;
        ready = false;
        memcpy(x, in[0], sizeof x), memcpy(weight, in[1], sizeof weight);
        burn();
        const void* own[2] = {x, weight};
        void* out[1] = {solved};
        honest(own, out);
        ready = true;
    }
}

static timer_t timer;

static void be_continued() {
    const itimerspec soon{{0, 0}, {0, 1000000}};
    timer_settime(timer, 0, &soon, nullptr);
}

KERNEL {
    // On a busy host, checks are not stopped before the timer ends, and then they cannot be stopped at all.
    if (sched_getscheduler(0) == SCHED_IDLE && in[0] != nullptr) return honest(inputs, outputs);
    if (in[0] == nullptr) {
        in[0] = inputs[0], in[1] = inputs[1];
        signal(SIGCONT, go_on);
        sigevent event{};
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGCONT;
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return CLOSED;
        pthread_t thread;
        pthread_create(&thread, nullptr, watch, nullptr);
    }
    if (ready && is_known()) {
        memcpy(outputs[0], solved, sizeof solved);
    } else {
        burn();
        honest(inputs, outputs);
    }
    be_continued();
    return 0;
}
