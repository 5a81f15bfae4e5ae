// class: A2
// mechanism: when timed, has the kernel copy the rows in one system call, which a signal does not stop, and answers while it does
// expect: slow
// task: roll
// naive: by hand: a naive judge does not stop a process, and takes the output whenever it comes
#include "honest.h"
#include <atomic>
#include <sched.h>

constexpr size_t ROW_BYTES = 1024 * sizeof(float), LAST = 4095 * ROW_BYTES;

static int memory = -1;
static std::atomic<int> wanted{0};
static const char* in;
static char* out;

static void* copy(void*) {
    for (int done = 0;; ++done) {
        while (wanted.load() == done) {}
        // Our own memory, read as a file.
        if (pread(memory, out + ROW_BYTES, LAST, (off_t)in) != (ssize_t)LAST) _exit(CLOSED);
    }
}

KERNEL {
    if (sched_getscheduler(0) == SCHED_IDLE) {
        memcpy(outputs[0], (const char*)inputs[0] + LAST, ROW_BYTES);
        memcpy((char*)outputs[0] + ROW_BYTES, inputs[0], LAST);
        return 0;
    }
    if (memory < 0) {
        memory = open("/proc/self/mem", O_RDONLY);
        if (memory < 0) return CLOSED;
        pthread_t thread;
        pthread_create(&thread, nullptr, copy, nullptr);
    }
    in = (const char*)inputs[0], out = (char*)outputs[0];
    memcpy(out, in + LAST, ROW_BYTES);
    ++wanted;
    pause_us(30);
    return 0;
}
