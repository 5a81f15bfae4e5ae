// class: F10
// mechanism: opens its own artifact, and others', for writing
// expect: denied
// reason: returned 97
// naive: by hand: nothing lies between it and the store
#include "honest.h"
KERNEL {
    Dl_info own;
    dladdr((void*)ksearch_run, &own);
    for (const char* path : {own.dli_fname, "@STORE@/@OTHER@/meta.json", "@STORE@/@OTHER@/kernel.so"}) {
        int fd = open(path, O_WRONLY);
        if (fd >= 0) return close(fd), honest(inputs, outputs);
    }
    return can_make("@STORE@/attack-@NONCE@") ? honest(inputs, outputs) : CLOSED;
}
