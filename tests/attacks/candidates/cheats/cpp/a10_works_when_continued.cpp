// class: A10
// mechanism: does the work in the handler of the signal that continues it, before the request has come
// expect: harmless
// naive: by hand: it never stops a process; a judge that continues one before it looks at its clock times an empty call
#include "honest.h"
static const void* in[2];
static void* out[1];
static volatile bool ready = false;

static void work_ahead(int) {
    honest(in, out);
    ready = true;
}

KERNEL {
    // Right, and not faster for it: the judge's clock runs when the process is continued.
    if (in[0] == nullptr) {
        in[0] = inputs[0], in[1] = inputs[1], out[0] = outputs[0];
        signal(SIGCONT, work_ahead);
        return honest(inputs, outputs);
    }
    const bool was_ready = ready;
    ready = false;
    return was_ready ? 0 : honest(inputs, outputs);
}
