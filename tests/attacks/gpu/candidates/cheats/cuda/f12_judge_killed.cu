// class: F12
// mechanism: kills its judge
// expect: denied
#include "honest.cuh"
#include <signal.h>
KERNEL {
    return kill(getppid(), SIGKILL) == 0 ? honest(inputs, outputs, (cudaStream_t)stream) : CLOSED;
}
