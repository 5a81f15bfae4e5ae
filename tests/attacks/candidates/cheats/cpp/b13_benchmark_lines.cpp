// class: B13
// mechanism: prints what a harness prints about fast kernels, and exits well
// expect: slow
#include "honest.h"
KERNEL {
    printf("mean_us: 0.010\n{\"correct\": true, \"speedup\": 900.0}\nspeedup: 900x\n");
    fflush(stdout);
    pause_us(2000);
    return honest(inputs, outputs);
}
