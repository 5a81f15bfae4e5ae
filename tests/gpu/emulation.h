// CUDA on a CPU, as far as the kernels beside this need it: to check their numbers where there is no GPU.
//
// The threads of a block are fibers, which run one after the other: a barrier, or a shuffle, lets the others come so
// far. Blocks run one after the other, so shared memory is static. Not emulated: time, races, rounding of the device.
// `emulated()` of `emulation.py` turns launches into calls of `emulation::run`. x86-64 only.
#pragma once
#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
using std::min;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
using cudaStream_t = void*;
using cudaError_t = int;
constexpr int cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorMemoryAllocation = 2;
static inline int cudaGetLastError() { return cudaSuccess; }
static inline int cudaMalloc(void** address, size_t size) {
    *address = malloc(size);
    return *address ? cudaSuccess : cudaErrorMemoryAllocation;
}
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

static dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void emulation_switch(void** from, void* to);
asm(".text\n.hidden emulation_switch\n.globl emulation_switch\nemulation_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

namespace emulation {

constexpr size_t STACK_BYTES = 64 << 10;

struct Fiber {
    void* stack_pointer;
    long barriers, shuffles;  // that it has come to
    bool ended;
    float given[2];  // to shuffles: while one thread reads this one's last value, it may give the next
};

static std::vector<Fiber> fibers;
static std::vector<char> stacks;
static const std::function<void()>* body;
static void* scheduler;
static unsigned current;

static void leave() { emulation_switch(&fibers[current].stack_pointer, scheduler); }

static void enter() {
    (*body)();
    fibers[current].ended = true;
    leave();
    abort();
}

static long behind_barriers;  // how many barriers the last thread of the block has come to
static std::vector<long> behind_shuffles;  // the same of shuffles, per warp

static void look_who_is_behind() {
    behind_barriers = LONG_MAX;
    behind_shuffles.assign((fibers.size() + 31) / 32, LONG_MAX);
    for (size_t index = 0; index < fibers.size(); ++index) {
        if (fibers[index].ended) continue;
        behind_barriers = std::min(behind_barriers, fibers[index].barriers);
        behind_shuffles[index / 32] = std::min(behind_shuffles[index / 32], fibers[index].shuffles);
    }
}

static bool may_go_on(unsigned index) {
    return fibers[index].barriers <= behind_barriers && fibers[index].shuffles <= behind_shuffles[index / 32];
}

static void block() {
    const unsigned count = blockDim.x;
    fibers.assign(count, Fiber{});
    stacks.resize(count * STACK_BYTES);
    for (unsigned index = 0; index < count; ++index) {
        auto top = reinterpret_cast<uintptr_t>(stacks.data() + (index + 1) * STACK_BYTES) & ~uintptr_t(63);
        void** stack = reinterpret_cast<void**>(top) - 8;  // six registers, where to go, and what keeps it aligned
        stack[6] = reinterpret_cast<void*>(enter);
        fibers[index].stack_pointer = stack;
    }
    for (unsigned ended = 0; ended < count;) {
        bool is_stuck = true;
        look_who_is_behind();
        for (unsigned index = 0; index < count; ++index) {
            if (fibers[index].ended || !may_go_on(index)) continue;
            is_stuck = false;
            current = index;
            threadIdx = dim3(index, 0, 0);
            emulation_switch(&scheduler, fibers[index].stack_pointer);
            ended += fibers[index].ended;
        }
        if (is_stuck) abort();
    }
}

static void run(dim3 grid, dim3 threads, const std::function<void()>& kernel) {
    gridDim = grid, blockDim = threads, body = &kernel;
    for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
            for (unsigned x = 0; x < grid.x; ++x) {
                blockIdx = dim3(x, y, z);
                block();
            }
}

}  // namespace emulation

static void __syncthreads() {
    ++emulation::fibers[emulation::current].barriers;
    emulation::leave();
}

static float __shfl_xor_sync(unsigned, float value, int mask) {
    const unsigned own = emulation::current;
    emulation::Fiber& fiber = emulation::fibers[own];
    const long turn = ++fiber.shuffles;
    fiber.given[turn % 2] = value;
    emulation::leave();
    return emulation::fibers[own ^ mask].given[turn % 2];
}
