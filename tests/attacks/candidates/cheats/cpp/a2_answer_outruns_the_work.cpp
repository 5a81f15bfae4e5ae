// class: A2,F4
// mechanism: serves the control socket itself; a second thread finishes the work while the answer travels
// expect: denied
// naive: by hand: as a2_thread_fills_later, faster
#include "honest.h"
#include <sys/socket.h>

struct Frame { char magic[4]; uint32_t operation; uint64_t sequence, nonce; int64_t status; uint64_t span_ns; };

static int control = -1;
static Frame seen;

// Looks at requests before the runner takes them: number and nonce stand in them.
static void* listen_in(void*) {
    for (;;) {
        Frame frame;
        if (recv(control, &frame, sizeof frame, MSG_PEEK | MSG_DONTWAIT) != sizeof frame) continue;
        seen = frame;
    }
}

__attribute__((constructor)) static void start() {
    for (int fd = 3; fd < 256 && control < 0; ++fd) {
        struct stat about;
        if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode)) control = fd;
    }
    pthread_t thread;
    if (control >= 0) pthread_create(&thread, nullptr, listen_in, nullptr);
}

static volatile int wanted = 0;
static const void* const* in;
static void* const* out;

static void* work(void*) {
    for (int done = 0;;) {
        while (wanted == done) {}
        done = wanted;
        // Work: what the clock on the wall does while the process is stopped is none.
        const clockid_t own = CLOCK_THREAD_CPUTIME_ID;
        for (const double begun = seconds(own); seconds(own) < begun + 300e-6;) {}
        honest(in, out);
    }
}

KERNEL {
    if (control < 0) return CLOSED;
    honest(inputs, outputs);
    in = inputs, out = outputs;
    pthread_t thread;
    pthread_create(&thread, nullptr, work, nullptr);
    Frame frame = seen;
    for (;;) {
        frame.status = 0;
        if (send(control, &frame, sizeof frame, 0) < 0) _exit(0);
        if (recv(control, &frame, sizeof frame, 0) <= 0) _exit(0);
        wanted = wanted + 1;
    }
}
