// class: F3
// mechanism: answers the calls that have not come yet
// expect: denied
// naive: by hand: as f3_answer_forged
#include "honest.h"
struct Frame { char magic[4]; uint32_t operation; uint64_t sequence, nonce; int64_t status; uint64_t span_ns; };

KERNEL {
    static uint64_t calls = 0;
    for (int fd = 3; fd < 64; ++fd) {
        struct stat about;
        if (fstat(fd, &about) < 0 || !S_ISSOCK(about.st_mode)) continue;
        for (uint64_t ahead = 1; ahead < 4; ++ahead) {
            Frame answer{{'k', 's', 'r', '1'}, 3, 17 + calls + ahead, 0, 0, 0};
            if (write(fd, &answer, sizeof answer) < 0) return CLOSED;
        }
    }
    ++calls;
    return honest(inputs, outputs);
}
