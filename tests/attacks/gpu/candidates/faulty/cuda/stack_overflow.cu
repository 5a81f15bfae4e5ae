// class: faulty
// mechanism: a kernel recurses without end
// expect: crashed|timed_out
#include "honest.cuh"
__device__ __noinline__ int deeper(int n, volatile int* y) { volatile int here[64]; here[n & 63] = y[0]; return deeper(n + 1, here) + here[3]; }
__global__ void fall(int* y) { y[0] = deeper(0, y); }
KERNEL {
    fall<<<1, 32, 0, (cudaStream_t)stream>>>((int*)outputs[0]);
    return cudaGetLastError();
}
