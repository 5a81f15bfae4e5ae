// class: F12
// mechanism: makes the memory of its outputs smaller, so that the judge falls over its end
// expect: denied
// reason: returned 97
// naive: by hand: its memory is in its own process; nothing is shared
#include "honest.h"
#include <dirent.h>
#include <string>

static bool shrink(const char* folder) {
    bool done = false;
    if (DIR* all = opendir(folder)) {
        while (dirent* entry = readdir(all)) {
            int fd = open((std::string(folder) + "/" + entry->d_name).c_str(), O_RDWR);
            if (fd < 0) continue;
            struct stat about;
            const bool is_ours = fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_nlink == 0;
            done = done || (is_ours && ftruncate(fd, 0) == 0);
            close(fd);
        }
        closedir(all);
    }
    return done;
}

KERNEL {
    honest(inputs, outputs);
    return shrink("/proc/self/fd") || shrink("/proc/self/map_files") ? 0 : CLOSED;
}
