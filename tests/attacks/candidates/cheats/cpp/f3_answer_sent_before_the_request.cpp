// class: F3,A2
// mechanism: when timed, sends each call's answer, correctly numbered, before the judge has asked: the clock stops as soon as it looks
// expect: rejected
// reason: control socket
// naive: by hand: as f3_answer_forged
#include "honest.h"
#include <sched.h>
#include <sys/socket.h>

struct Frame { char magic[4]; uint32_t operation; uint64_t sequence, nonce; int64_t status; uint64_t span_ns; };

static const void* in[2];
static void* out[1];

// What is done when it is continued is not in its time either, if the judge finds an answer at once.
static void work(int) { honest(in, out); }

KERNEL {
    if (sched_getscheduler(0) == SCHED_IDLE) return honest(inputs, outputs);
    static bool begun = false;
    if (begun) return 0;
    begun = true;
    int control = -1;
    for (int fd = 3; fd < 256 && control < 0; ++fd) {
        struct stat about;
        if (fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode)) control = fd;
    }
    // The nonce stands in the runner's arguments; how many requests came before the first call is known.
    static char text[1 << 18];
    const int arguments = open("/proc/self/cmdline", O_RDONLY);
    size_t size = 0;
    for (ssize_t got; (got = read(arguments, text + size, sizeof text - size)) > 0;) size += got;
    const char* found = (const char*)memmem(text, size, "\"nonce\":", 8);
    if (control < 0 || found == nullptr) return CLOSED;
    Frame frame{{'k', 's', 'r', '1'}, 3, 20, strtoull(found + 8, nullptr, 10), 0, 0};
    in[0] = inputs[0], in[1] = inputs[1], out[0] = outputs[0];
    honest(inputs, outputs);
    signal(SIGCONT, work);
    for (send(control, &frame, sizeof frame, 0);;) {
        ++frame.sequence;
        if (send(control, &frame, sizeof frame, 0) < 0) _exit(0);
        Frame request;
        if (recv(control, &request, sizeof request, 0) <= 0) _exit(0);
    }
}
