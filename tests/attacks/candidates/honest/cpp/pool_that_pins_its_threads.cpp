// class: honest
// mechanism: a pool pins its threads to cores, by attributes and by themselves, and gives up where that fails
// expect: correct
// task: single
#include "honest.h"
#include <sched.h>

static void* pinned(void*) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(1, &core);
    if (pthread_setaffinity_np(pthread_self(), sizeof core, &core) != 0) abort();
    return nullptr;
}

KERNEL {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(0, &core);
    pthread_attr_setaffinity_np(&attributes, sizeof core, &core);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, pinned, nullptr) != 0) return 1;
    pthread_join(thread, nullptr);
    return honest(inputs, outputs);
}
