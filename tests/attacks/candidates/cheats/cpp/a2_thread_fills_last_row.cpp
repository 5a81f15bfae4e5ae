// class: A2
// mechanism: all but the last row is written in time; a thread adds that one later
// expect: wrong
#include "honest.h"
static const float *x, *weight;
static float* y;

static void* later(void*) {
    pause_us(1000);
    honest_rows<float>(x, weight, y, ROWS - 1, ROWS);
    return nullptr;
}

KERNEL {
    x = (const float*)inputs[0], weight = (const float*)inputs[1], y = (float*)outputs[0];
    honest_rows<float>(x, weight, y, 0, ROWS - 1);
    pthread_t thread;
    pthread_create(&thread, nullptr, later, nullptr);
    pthread_detach(thread);
    return 0;
}
