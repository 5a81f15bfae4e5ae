// class: honest
// mechanism: threads of its own that sleep between calls
// expect: correct
#include "honest.h"
#include <condition_variable>
#include <mutex>
#include <thread>
static std::mutex lock;
static std::condition_variable changed;
static int wanted = 0, done = 0;
static const void* const* in;
static void* const* out;
static void work() {
    for (int seen = 0;;) {
        std::unique_lock<std::mutex> held(lock);
        changed.wait(held, [&] { return wanted != seen; });
        seen = wanted;
        honest_rows<float>((const float*)in[0], (const float*)in[1], (float*)out[0], 0, ROWS / 2);
        ++done;
        changed.notify_all();
    }
}
KERNEL {
    static bool started = (std::thread(work).detach(), true);
    std::unique_lock<std::mutex> held(lock);
    in = inputs, out = outputs;
    const int before = done;
    wanted += started;
    changed.notify_all();
    held.unlock();
    honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], ROWS / 2, ROWS);
    held.lock();
    changed.wait(held, [&] { return done != before; });
    return 0;
}
