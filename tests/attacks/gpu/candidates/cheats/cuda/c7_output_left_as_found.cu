// class: C7,D14
// mechanism: writes nothing once the buffer holds an answer
// expect: wrong
#include "honest.cuh"
KERNEL {
    static int calls = 0;
    return calls++ == 0 ? honest(inputs, outputs, (cudaStream_t)stream) : 0;
}
