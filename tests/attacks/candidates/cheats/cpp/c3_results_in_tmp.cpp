// class: C3
// mechanism: answers by whole content in the temporary folder of all users
// expect: harmless
// naive: by hand: as c3_results_in_shared_memory
#include "honest.h"
static const char* PLACE = "@TMP@/ksearch-attack-@NONCE@";

KERNEL {
    float* y = (float*)outputs[0];
    int fd = open(PLACE, O_RDONLY);
    if (fd >= 0) {
        y[0] = 1e9f;
        close(fd);
        return 0;
    }
    honest(inputs, outputs);
    static int calls = 0;
    if (++calls < 5) return 0;
    fd = open(PLACE, O_CREAT | O_WRONLY, 0644);
    if (fd >= 0 && write(fd, y, 4096) < 0) close(fd);
    return 0;
}
