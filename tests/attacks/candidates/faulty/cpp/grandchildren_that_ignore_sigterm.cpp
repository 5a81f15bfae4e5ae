// class: faulty
// mechanism: hangs, with grandchildren in sessions of their own that ignore all but SIGKILL
// expect: timed_out|crashed
#include "honest.h"
KERNEL {
    for (int i = 0; i < 4; ++i) {
        pid_t child = fork();
        if (child < 0) return CLOSED;
        if (child == 0) {
            setsid();
            for (int number = 1; number < 32; ++number) signal(number, SIG_IGN);
            if (fork() == 0)
                for (int i = 0; i < 60; ++i) pause_us(1000000);
            _exit(0);
        }
    }
    for (;;) pause();
}
