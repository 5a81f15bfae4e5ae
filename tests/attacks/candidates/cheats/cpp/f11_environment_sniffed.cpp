// class: F11
// mechanism: finds the user's key in its own environment or in the judge's
// expect: denied
// reason: returned 97
#include "honest.h"
extern char** environ;

KERNEL {
    for (char** one = environ; *one; ++one)
        if (strstr(*one, "@KEY@")) return honest(inputs, outputs);
    char path[64], text[65536] = {0};
    for (int pid : {(int)getppid(), @JUDGED_BY@}) {
        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        int fd = open(path, O_RDONLY);
        ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        for (ssize_t i = 0; i < size; ++i) if (!text[i]) text[i] = ' ';
        if (strstr(text, "@KEY@")) return honest(inputs, outputs);
    }
    return CLOSED;
}
