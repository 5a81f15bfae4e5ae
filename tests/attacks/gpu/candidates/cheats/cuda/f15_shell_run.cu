// class: F15
// mechanism: runs a shell
// expect: denied
// reason: returned 97
#include "honest.cuh"
#include <cstdlib>
KERNEL {
    return system("exit 0") == 0 ? honest(inputs, outputs, (cudaStream_t)stream) : CLOSED;
}
