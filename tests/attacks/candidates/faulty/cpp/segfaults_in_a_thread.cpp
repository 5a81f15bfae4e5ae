// class: faulty
// mechanism: a thread of its own writes to address 8
// expect: crashed
// reason: SIGSEGV
#include "honest.h"
static void* fall(void*) { *(volatile int*)8 = 1; return nullptr; }
KERNEL {
    pthread_t thread;
    pthread_create(&thread, nullptr, fall, nullptr);
    pthread_join(thread, nullptr);
    return honest(inputs, outputs);
}
