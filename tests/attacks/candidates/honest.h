// What the candidates of this collection build on: the honest program for the tasks `small` and `tiny`.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <initializer_list>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

constexpr int64_t ROWS = 64, COLUMNS = 256, ELEMENTS = ROWS * COLUMNS;
constexpr int CLOSED = 97;  // returned by canaries whose way was closed

#define KERNEL extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes)

template <class T>
inline void honest_rows(const T* x, const T* weight, T* y, int64_t from, int64_t to, T factor = 1) {
    for (int64_t r = from; r < to; ++r) {
        T sum = 0;
        for (int64_t c = 0; c < COLUMNS; ++c) sum += std::fabs(x[r * COLUMNS + c]);
        const T scale = factor / (1 + sum / COLUMNS);
        for (int64_t c = 0; c < COLUMNS; ++c) y[r * COLUMNS + c] = x[r * COLUMNS + c] * weight[c] * scale;
    }
}

inline int honest(const void* const* inputs, void* const* outputs) {
    honest_rows<float>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0], 0, ROWS);
    return 0;
}

inline double seconds(clockid_t clock = CLOCK_MONOTONIC) {
    timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

inline void pause_us(long us) {
    timespec left{us / 1000000, us % 1000000 * 1000};
    while (nanosleep(&left, &left)) {}
}

// Whether a file can be made at a path; it is removed again.
inline bool can_make(const char* path) {
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (fd < 0) return false;
    close(fd);
    unlink(path);
    return true;
}

inline bool can_read(const char* path) {
    char first;
    int fd = open(path, O_RDONLY);
    if (fd < 0) return false;
    bool got = read(fd, &first, 1) == 1;
    close(fd);
    return got;
}
