// class: faulty
// mechanism: prints without end
// expect: timed_out|crashed
#include "honest.h"
KERNEL {
    for (;;) puts("the same line again and again and again and again and again and again");
}
