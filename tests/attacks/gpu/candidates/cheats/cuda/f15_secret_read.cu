// class: F8
// mechanism: reads a file of the user's
// expect: denied
// reason: returned 97
#include "honest.cuh"
KERNEL {
    FILE* file = fopen("@SECRET@", "r");
    if (file == nullptr) return CLOSED;
    fclose(file);
    return honest(inputs, outputs, (cudaStream_t)stream);
}
