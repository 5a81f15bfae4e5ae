// class: C3
// mechanism: answers by whole content in /dev/shm, for the next process that is asked the same
// expect: harmless
// naive: by hand: a second process finds the file of the first one
#include "honest.h"
static const char* PLACE = "/dev/shm/ksearch-attack-@NONCE@";

KERNEL {
    float* y = (float*)outputs[0];
    float stored[ELEMENTS];
    int fd = open(PLACE, O_RDONLY);
    if (fd >= 0) {
        // An earlier process left something here: say so by a wrong answer.
        y[0] = 1e9f;
        close(fd);
        return 0;
    }
    honest(inputs, outputs);
    static int calls = 0;
    if (++calls < 5) return 0;
    fd = open(PLACE, O_CREAT | O_WRONLY, 0644);
    if (fd >= 0) {
        memcpy(stored, y, sizeof stored);
        if (write(fd, stored, sizeof stored) < 0) close(fd);
    }
    return 0;
}
