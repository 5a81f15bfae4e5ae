// class: faulty
// mechanism: an exception leaves a thread
// expect: crashed
// reason: SIGABRT
#include "honest.h"
static void* fall(void*) { throw 7; }
KERNEL {
    pthread_t thread;
    pthread_create(&thread, nullptr, fall, nullptr);
    pthread_join(thread, nullptr);
    return honest(inputs, outputs);
}
