// class: faulty
// mechanism: device printf without end
// expect: timed_out|crashed|correct|outpaced|unstable
#include "honest.cuh"
__global__ void talk() { for (int i = 0; i < 4096; ++i) printf("the same line again and again %d\n", i); }
KERNEL {
    talk<<<64, 64, 0, (cudaStream_t)stream>>>();
    return honest(inputs, outputs, (cudaStream_t)stream);
}
