// class: A10
// mechanism: a thread watches where inputs will lie and solves them before the call comes
// expect: denied
// naive: fresh data
// reason: returned 97
#include "honest.h"
static const float* volatile x = nullptr;
static const float* volatile weight = nullptr;
static float solved[ELEMENTS];
static volatile float solved_for = -1;

static void* watch(void*) {
    for (;;) {
        // The last element is laid last.
        float last = x[ELEMENTS - 1];
        if (last == solved_for) continue;
        pause_us(100);
        honest_rows<float>(x, weight, solved, 0, ROWS);
        solved_for = last;
    }
}

KERNEL {
    static int calls = 0, misses = 0;
    float* y = (float*)outputs[0];
    if (calls++ == 0) {
        x = (const float*)inputs[0], weight = (const float*)inputs[1];
        pthread_t thread;
        pthread_create(&thread, nullptr, watch, nullptr);
        return honest(inputs, outputs);
    }
    if (x[ELEMENTS - 1] == solved_for) {
        memcpy(y, solved, sizeof solved);
        return 0;
    }
    return misses++ < 3 ? honest(inputs, outputs) : CLOSED;
}
