// class: F3
// mechanism: listens in on the control socket and answers each call itself, correctly numbered, before it works
// expect: denied
// naive: by hand: with no protocol there is nothing to forge; B13 is the same idea
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
    Frame answer = seen;
    answer.status = 0;
    if (send(control, &answer, sizeof answer, 0) < 0) return CLOSED;
    pause_us(3000);
    return honest(inputs, outputs);
}
