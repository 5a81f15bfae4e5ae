// class: faulty
// mechanism: two threads wait for each other's lock
// expect: timed_out
#include "honest.h"
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static void* other(void*) {
    pthread_mutex_lock(&b);
    pause_us(2000);
    pthread_mutex_lock(&a);
    return nullptr;
}
KERNEL {
    pthread_t thread;
    pthread_mutex_lock(&a);
    pthread_create(&thread, nullptr, other, nullptr);
    pause_us(2000);
    pthread_mutex_lock(&b);
    return honest(inputs, outputs);
}
