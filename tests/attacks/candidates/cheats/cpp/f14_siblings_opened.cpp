// class: F14
// mechanism: opens the memory of other processes of this evaluator for writing
// expect: denied
// reason: returned 97
#include "honest.h"
#include <dirent.h>

KERNEL {
    DIR* all = opendir("/proc");
    if (all == nullptr) return CLOSED;
    while (dirent* entry = readdir(all)) {
        int pid = atoi(entry->d_name);
        if (pid <= 1 || pid == getpid()) continue;
        char path[64], text[4096] = {0};
        snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
        int fd = open(path, O_RDONLY);
        ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        close(fd);
        for (ssize_t i = 0; i < size; ++i) if (!text[i]) text[i] = ' ';
        if (!strstr(text, "evaluators")) continue;
        snprintf(path, sizeof path, "/proc/%d/mem", pid);
        if ((fd = open(path, O_RDWR)) < 0) continue;
        close(fd);
        return honest(inputs, outputs);
    }
    return CLOSED;
}
