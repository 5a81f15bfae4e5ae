// class: faulty
// mechanism: a kernel reads a float4 at an odd address
// expect: crashed
#include "honest.cuh"
__global__ void astray(const char* x, float* y) {
    float a, b, c, d;  // in assembler: the compiler would load the one float that is used, and that one is aligned
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(x + 4));
    y[0] = a + b + c + d;
}
KERNEL {
    astray<<<1, 1, 0, (cudaStream_t)stream>>>((const char*)inputs[0], (float*)outputs[0]);
    return cudaGetLastError();
}
