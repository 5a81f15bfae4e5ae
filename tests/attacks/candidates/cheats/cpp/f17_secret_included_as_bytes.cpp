// class: F17
// mechanism: has the assembler include a file of the user's
// expect: denied
// naive: by hand: as f17_secret_included
#include "honest.h"
asm(".section .rodata\nstolen: .incbin \"@SECRET@\"\n.byte 0\n.previous\n");
extern "C" const char stolen[];

KERNEL {
    return stolen[0] ? honest(inputs, outputs) : CLOSED;
}
