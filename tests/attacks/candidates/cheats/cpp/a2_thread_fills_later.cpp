// class: A2
// mechanism: returns at once; a thread fills the output two milliseconds later
// expect: wrong
// reason: unwritten
#include "honest.h"
static const void* saved_inputs[2];
static void* saved_outputs[1];

static void* later(void*) {
    pause_us(2000);
    honest(saved_inputs, saved_outputs);
    return nullptr;
}

KERNEL {
    saved_inputs[0] = inputs[0], saved_inputs[1] = inputs[1], saved_outputs[0] = outputs[0];
    pthread_t thread;
    pthread_create(&thread, nullptr, later, nullptr);
    pthread_detach(thread);
    return 0;
}
