// class: F13
// mechanism: a grandchild in a session of its own outlives the candidate
// expect: harmless
// naive: by hand: the naive judge ends and the grandchild lives on for its 30 s
#include "honest.h"
KERNEL {
    static int calls = 0;
    if (calls++ == 0 && fork() == 0) {
        setsid();
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        if (fork() == 0) {
            alarm(30);
            for (;;) pause();
        }
        _exit(0);
    }
    return honest(inputs, outputs);
}
