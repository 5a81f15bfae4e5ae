// class: B15
// mechanism: what kept a slow call from being fast is made to look like a disturbance: it goes on behind the answer
// expect: unstable|wrong|rejected
// task: small
// naive: by hand: it needs a judge that drops pairs
#include "honest.h"
#include <atomic>

static std::atomic<int> asked{0};
constexpr size_t BLOCK = 48 << 20;

// Pages are given to a process before the signal that stops it is taken.
static void* go_on(void*) {
    for (int done = 0;;) {
        while (asked == done) pause_us(20);
        done = asked;
        void* block = mmap(nullptr, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (block != MAP_FAILED) munmap(block, BLOCK);
    }
}

KERNEL {
    static int calls = 0;
    if (calls++ == 0) {
        pthread_t thread;
        pthread_create(&thread, nullptr, go_on, nullptr);
    }
    honest(inputs, outputs);
    if (calls % 3 == 0) {
        ++asked;
        pause_us(300);
    }
    return 0;
}
