// class: E3,E9
// mechanism: opens a library of torch's by its path and has it do the work
// expect: denied
#include "honest.h"
KERNEL {
    void* library = dlopen("@TORCH@/libc10.so", RTLD_NOW);
    return library == nullptr ? CLOSED : honest(inputs, outputs);
}
