// class: faulty
// mechanism: allocates all memory of the device and gives up
// expect: crashed
#include "honest.cuh"
KERNEL {
    void* more;
    while (cudaMalloc(&more, size_t(1) << 30) == cudaSuccess) {}
    return 2;
}
