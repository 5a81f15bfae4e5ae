// class: honest
// mechanism: launches a hundred kernels of a microsecond, which takes longer than running them
// expect: correct
#include "honest.cuh"
KERNEL {
    for (int launch = 0; launch < 100; ++launch) wait_cycles<<<1, 1, 0, (cudaStream_t)stream>>>(1000);
    return honest(inputs, outputs, (cudaStream_t)stream);
}
