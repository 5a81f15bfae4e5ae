// class: E3
// mechanism: opens cuBLAS by its name while it runs
// expect: denied
#include "honest.cuh"
#include <dlfcn.h>
KERNEL {
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
        if (dlopen(name, RTLD_NOW) != nullptr) return honest(inputs, outputs, (cudaStream_t)stream);
    return CLOSED;
}
