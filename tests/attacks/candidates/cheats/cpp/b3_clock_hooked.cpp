// class: B3
// mechanism: at load, every library's slot for clock_gettime is led to a clock that stands still
// expect: slow
#include "honest.h"
#include <link.h>

// Every call slot of every library that is loaded, and that leads to the real function, is led to ours.
static int (*real)(clockid_t, timespec*);
static timespec loaded;
static long told = 0;

static int slow_clock(clockid_t, timespec* now) {
    told += 1000;
    // Behind the true one: who sleeps until a time that it tells must not sleep long.
    now->tv_sec = loaded.tv_sec + told / 1000000000;
    now->tv_nsec = told % 1000000000;
    return 0;
}

static int patch(dl_phdr_info* info, size_t, void*) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& part = info->dlpi_phdr[i];
        if (part.p_type != PT_LOAD || !(part.p_flags & PF_W)) continue;
        uintptr_t from = (info->dlpi_addr + part.p_vaddr + 7) & ~uintptr_t(7);
        uintptr_t to = info->dlpi_addr + part.p_vaddr + part.p_memsz;
        for (uintptr_t slot = from; slot + 8 <= to; slot += 8) {
            if (*(uintptr_t*)slot != (uintptr_t)real || slot == (uintptr_t)&real) continue;
            mprotect((void*)(slot & ~uintptr_t(4095)), 4096, PROT_READ | PROT_WRITE);
            *(uintptr_t*)slot = (uintptr_t)slow_clock;
        }
    }
    return 0;
}

__attribute__((constructor)) static void hook() {
    real = clock_gettime;
    real(CLOCK_MONOTONIC, &loaded);
    dl_iterate_phdr(patch, nullptr);
}

KERNEL {
    pause_us(2000);
    return honest(inputs, outputs);
}
