// class: A9,A10
// mechanism: behind an empty call a thread launches what waits for the next inputs and solves them before they are asked for
// expect: unstable|rejected|wrong
// reason: while its process was stopped|elements of output are wrong
#include "honest.cuh"
#include <atomic>
#include <ctime>

constexpr int LOOKED_AT = 64;  // elements by which inputs are told apart
static std::atomic<int> calls{0};
static const float *x = nullptr, *weight = nullptr;
static float *memo = nullptr, *known = nullptr;
static int* solved_for = nullptr;  // number of the call that is answered by then

__device__ long long now_ns() {
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ void row_of(const volatile float* x, const volatile float* weight, float* y, int row, float* sums) {
    const int column = threadIdx.x;
    const float value = x[row * COLUMNS + column];
    sums[column] = fabsf(value);
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half];
        __syncthreads();
    }
    y[row * COLUMNS + column] = value * weight[column] / (1 + sums[0] / COLUMNS);
    __syncthreads();
}

__global__ void solve_what_comes(
    const volatile float* x, const volatile float* weight, const float* known, float* memo, int* solved_for, int number) {
    __shared__ float sums[COLUMNS];
    __shared__ int is_new;
    const long long until = now_ns() + 12000000;
    if (threadIdx.x == 0) {
        is_new = 0;
        while (!is_new && now_ns() < until)
            for (int i = 0; i < LOOKED_AT; ++i) is_new |= x[i] != known[i];
        for (const long long begun = now_ns(); is_new && now_ns() - begun < 100000;) {}  // until all of them are there
    }
    __syncthreads();
    if (!is_new) return;
    for (int row = 0; row < ROWS; ++row) row_of(x, weight, memo, row, sums);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *solved_for = number;
}

// As if it took 100 us, unless these inputs were solved.
__global__ void answer(const float* x, const float* weight, const float* memo, const int* solved_for, int number, float* y) {
    __shared__ float sums[COLUMNS];
    const bool is_solved = *solved_for == number;
    if (is_solved) {
        y[blockIdx.x * COLUMNS + threadIdx.x] = memo[blockIdx.x * COLUMNS + threadIdx.x];
        return;
    }
    for (const long long begun = now_ns(); now_ns() - begun < 100000;) {}
    row_of(x, weight, y, blockIdx.x, sums);
}

__global__ void remember(const float* x, float* known) { known[threadIdx.x] = x[threadIdx.x]; }

static long long host_now_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void* behind_empty_calls(void*) {
    cudaStream_t own;
    cudaEvent_t turn;
    cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&turn, cudaEventDisableTiming);
    for (long long last = host_now_ns();; last = host_now_ns()) {
        const long long woke = host_now_ns();
        if (woke - last < 200000) continue;  // it was not stopped
        const int before = calls;
        cudaEventRecord(turn, own);
        while (cudaEventQuery(turn) == cudaErrorNotReady) {}
        // The process has its turn. Its first thread waits for no more than what it launched itself, and answers.
        const long long done = host_now_ns();
        while (host_now_ns() - done < 40000 || host_now_ns() - woke < 150000) {}
        if (calls == before) solve_what_comes<<<1, COLUMNS, 0, own>>>(x, weight, known, memo, solved_for, before + 1);
    }
}

KERNEL {
    if (memo == nullptr) {
        cudaMalloc(&memo, ELEMENTS * sizeof(float));
        cudaMalloc(&known, LOOKED_AT * sizeof(float));
        cudaMalloc(&solved_for, sizeof(int));
        cudaMemset(solved_for, 0, sizeof(int));
        x = (const float*)inputs[0], weight = (const float*)inputs[1];
        cudaFuncAttributes loaded;
        cudaFuncGetAttributes(&loaded, solve_what_comes);
        pthread_t thread;
        pthread_create(&thread, nullptr, behind_empty_calls, nullptr);
        pthread_detach(thread);
    }
    const int number = ++calls;
    answer<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(x, weight, memo, solved_for, number, (float*)outputs[0]);
    remember<<<1, LOOKED_AT, 0, (cudaStream_t)stream>>>(x, known);
    return cudaGetLastError();
}
