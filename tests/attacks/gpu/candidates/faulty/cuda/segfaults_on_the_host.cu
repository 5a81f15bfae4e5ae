// class: faulty
// mechanism: reads a device pointer on the host
// expect: crashed
#include "honest.cuh"
KERNEL {
    return honest(inputs, outputs, (cudaStream_t)stream) + (int)((volatile const float*)inputs[0])[0] * 0;
}
