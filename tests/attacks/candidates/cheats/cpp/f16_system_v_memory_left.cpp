// class: F13,F19
// mechanism: leaves shared memory of System V's behind, which no process owns
// expect: harmless
// naive: by hand: `ipcs -m` still shows it when the naive judge has ended
#include "honest.h"
#include <sys/ipc.h>
#include <sys/shm.h>

KERNEL {
    static int calls = 0;
    if (calls++ == 0) shmget(@SHM_KEY@, 1 << 20, IPC_CREAT | 0600);
    return honest(inputs, outputs);
}
