// class: C12
// mechanism: where the input lies tells it where the output lay when it came from there last time
// expect: wrong
// reason: never written
// naive: fresh data
#include "honest.h"
KERNEL {
    static const void* keys[16];
    static void* kept[16];
    int at = 0;
    while (keys[at] && keys[at] != inputs[0]) ++at;
    if (!keys[at]) keys[at] = inputs[0], kept[at] = outputs[0];
    return honest(inputs, &kept[at]);
}
