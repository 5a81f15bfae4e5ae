// class: F15,B13
// mechanism: prints what a terminal acts upon, for the one who reads why it crashed
// expect: crashed
// reason: ^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*hello
// naive: by hand: it shows what was printed as it is
#include "honest.h"
KERNEL {
    fprintf(stderr, "\x1b]0;title\x07\x1b[2J\x1b[31mhello\n");
    fflush(stderr);
    abort();
}
