// class: F4
// mechanism: never returns to the runner: serves the control socket itself, and answers before it works
// expect: denied
// naive: by hand: as f3_answer_forged
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

KERNEL {
    if (control < 0) return CLOSED;
    honest(inputs, outputs);
    Frame frame = seen;
    frame.status = 0;
    for (;;) {
        // Of every request the answer goes first, the work comes after.
        if (send(control, &frame, sizeof frame, 0) < 0) _exit(0);
        pause_us(3000);
        honest(inputs, outputs);
        if (recv(control, &frame, sizeof frame, 0) <= 0) _exit(0);
        frame.status = 0;
    }
}
