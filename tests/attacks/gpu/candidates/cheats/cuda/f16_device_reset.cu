// class: F16
// mechanism: resets the device of its process when it is done
// expect: denied
#include "honest.cuh"
KERNEL {
    honest(inputs, outputs, (cudaStream_t)stream);
    cudaDeviceSynchronize();
    cudaDeviceReset();
    return 0;
}
