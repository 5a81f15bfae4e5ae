// class: A9,A10
// mechanism: behind an empty call a thread launches what waits for the next inputs and solves them before they are asked for
// expect: unstable|rejected
// reason: while its process was stopped
#include "honest.cuh"
#include <atomic>
#include <ctime>

constexpr int LOOKED_AT = 64;  // elements by which inputs are told apart
static std::atomic<int> calls{0};
static const float *x = nullptr, *weight = nullptr;
static float *memo = nullptr, *known = nullptr;
static int* is_there = nullptr;

__device__ long long now_ns() {
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ void row_of(const volatile float* x, const float* weight, volatile float* y, int row, float* sums) {
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

__global__ void solve_what_comes(const volatile float* x, const float* weight, float* known, float* memo, int* is_there) {
    __shared__ float sums[COLUMNS];
    __shared__ int is_new;
    const long long until = now_ns() + 30000000;
    if (threadIdx.x == 0) {
        is_new = 0;
        while (!is_new && now_ns() < until)
            for (int i = 0; i < LOOKED_AT; ++i) is_new |= x[i] != known[i];
        for (long long begun = now_ns(); is_new && now_ns() - begun < 20000;) {}  // until all of them are there
    }
    __syncthreads();
    if (!is_new) return;
    for (int row = 0; row < ROWS; ++row) row_of(x, weight, memo, row, sums);
    if (threadIdx.x < LOOKED_AT) known[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 0) *is_there = 1;
}

// As if it took 100 us, unless the inputs are those that were solved.
__global__ void answer(const float* x, const float* weight, float* known, const float* memo, const int* is_there, float* y) {
    __shared__ float sums[COLUMNS];
    __shared__ int is_known;
    if (threadIdx.x == 0) {
        is_known = *is_there;
        for (int i = 0; i < LOOKED_AT; ++i) is_known &= x[i] == known[i];
        for (long long begun = now_ns(); !is_known && now_ns() - begun < 100000;) {}
    }
    __syncthreads();
    if (is_known) y[blockIdx.x * COLUMNS + threadIdx.x] = memo[blockIdx.x * COLUMNS + threadIdx.x];
    else row_of(x, weight, y, blockIdx.x, sums);
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
        if (host_now_ns() - last < 200000) continue;  // it was not stopped
        const int before = calls;
        cudaEventRecord(turn, own);
        while (cudaEventQuery(turn) == cudaErrorNotReady) {}
        if (calls == before) solve_what_comes<<<1, COLUMNS, 0, own>>>(x, weight, known, memo, is_there);
    }
}

KERNEL {
    if (memo == nullptr) {
        cudaMalloc(&memo, ELEMENTS * sizeof(float));
        cudaMalloc(&known, LOOKED_AT * sizeof(float));
        cudaMalloc(&is_there, sizeof(int));
        cudaMemset(is_there, 0, sizeof(int));
        x = (const float*)inputs[0], weight = (const float*)inputs[1];
        pthread_t thread;
        pthread_create(&thread, nullptr, behind_empty_calls, nullptr);
        pthread_detach(thread);
    }
    ++calls;
    answer<<<ROWS, COLUMNS, 0, (cudaStream_t)stream>>>(x, weight, known, memo, is_there, (float*)outputs[0]);
    remember<<<1, LOOKED_AT, 0, (cudaStream_t)stream>>>(x, known);
    cudaMemsetAsync(is_there, 0, sizeof(int), (cudaStream_t)stream);
    return cudaGetLastError();
}
