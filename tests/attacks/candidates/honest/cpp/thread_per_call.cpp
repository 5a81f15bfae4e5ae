// class: honest
// mechanism: a thread is started and joined in every call
// expect: correct|outpaced
#include "honest.h"
#include <thread>
KERNEL {
    std::thread upper([=] {
        honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], 0, ROWS / 2);
    });
    honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], ROWS / 2, ROWS);
    upper.join();
    return 0;
}
