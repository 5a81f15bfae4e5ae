// class: honest
// mechanism: a thread of its own that spins between calls, and is joined within each
// expect: correct|outpaced
#include "honest.h"
#include <atomic>
#include <thread>
static std::atomic<int> wanted{0}, done{0};
static const void* const* in;
static void* const* out;
static void work() {
    for (int seen = 0;; ++seen) {
        while (wanted.load() == seen) {}
        honest_rows<float>((const float*)in[0], (const float*)in[1], (float*)out[0], 0, ROWS / 2);
        done.store(seen + 1);
    }
}
KERNEL {
    static bool started = (std::thread(work).detach(), true);
    in = inputs, out = outputs;
    const int call = (wanted += started);
    honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], ROWS / 2, ROWS);
    while (done.load() != call) {}
    return 0;
}
