// class: faulty
// mechanism: three hundred threads that sleep for ever
// expect: harmless|crashed|timed_out
#include "honest.h"
static void* sleep_on(void*) { for (;;) pause(); }
KERNEL {
    static int calls = 0;
    pthread_t thread;
    for (int i = 0; i < 300 && calls == 0; ++i)
        if (pthread_create(&thread, nullptr, sleep_on, nullptr) != 0) break;
    ++calls;
    return honest(inputs, outputs);
}
