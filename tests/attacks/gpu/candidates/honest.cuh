// What the CUDA candidates of this collection build on: the honest program for the task `small`, one block per row.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
#include <pthread.h>
#include <unistd.h>

constexpr int ROWS = 64, COLUMNS = 256, ELEMENTS = ROWS * COLUMNS;
constexpr int CLOSED = 97;  // returned by canaries whose way was closed

#define KERNEL \
    extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream)

__global__ void scale_rows(const float* x, const float* weight, float* y) {
    __shared__ float sums[COLUMNS];
    const int row = blockIdx.x, column = threadIdx.x;
    const float value = x[row * COLUMNS + column];
    sums[column] = fabsf(value);
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half];
        __syncthreads();
    }
    y[row * COLUMNS + column] = value * weight[column] / (1 + sums[0] / COLUMNS);
}

inline int honest(const void* const* inputs, void* const* outputs, cudaStream_t stream) {
    scale_rows<<<ROWS, COLUMNS, 0, stream>>>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0]);
    return cudaGetLastError();
}

__global__ void wait_cycles(long long cycles) {
    const long long begun = clock64();
    while (clock64() - begun < cycles) {}
}

#ifdef WITH_GRAPH
// The honest kernel as a graph over these addresses. Kernels in a captured graph keep the pointers that they were given.
inline cudaGraphExec_t captured(const void* const* inputs, void* const* outputs) {
    cudaStream_t own;
    cudaGraph_t graph;
    cudaGraphExec_t replay = nullptr;
    cudaStreamCreate(&own);
    cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal);
    honest(inputs, outputs, own);
    cudaStreamEndCapture(own, &graph);
    cudaGraphInstantiate(&replay, graph, 0);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(own);
    return replay;
}
#endif

#ifdef WITH_TMA
#include <cuda.h>
#include <cuda/barrier>
#pragma nv_diag_suppress static_var_with_dynamic_init

// Loads each row by the tensor memory accelerator, from the address in the descriptor.
__global__ void scale_rows_by_tma(const __grid_constant__ CUtensorMap rows, const float* weight, float* y) {
    namespace cde = cuda::device::experimental;
    __shared__ alignas(128) float values[COLUMNS];
    __shared__ float sums[COLUMNS];
    __shared__ cuda::barrier<cuda::thread_scope_block> arrived;
    const int row = blockIdx.x, column = threadIdx.x;
    if (column == 0) {
        init(&arrived, blockDim.x);
        cde::fence_proxy_async_shared_cta();
    }
    __syncthreads();
    cuda::barrier<cuda::thread_scope_block>::arrival_token token;
    if (column == 0) {
        cde::cp_async_bulk_tensor_2d_global_to_shared(values, &rows, 0, row, arrived);
        token = cuda::device::barrier_arrive_tx(arrived, 1, sizeof values);
    } else {
        token = arrived.arrive();
    }
    arrived.wait(std::move(token));
    const float value = values[column];
    sums[column] = fabsf(value);
    __syncthreads();
    for (int half = COLUMNS / 2; half > 0; half /= 2) {
        if (column < half) sums[column] += sums[column + half];
        __syncthreads();
    }
    y[row * COLUMNS + column] = value * weight[column] / (1 + sums[0] / COLUMNS);
}

// Describes the rows that lie at an address; false: the driver does not.
inline bool describe_rows(CUtensorMap* map, const void* x) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess)
        return false;
    const cuuint64_t sizes[2] = {COLUMNS, ROWS}, strides[1] = {COLUMNS * sizeof(float)};
    const cuuint32_t box[2] = {COLUMNS, 1}, steps[2] = {1, 1};
    return ((decltype(&cuTensorMapEncodeTiled))entry)(
               map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<void*>(x), sizes, strides, box, steps,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

inline int honest_by_tma(const CUtensorMap& rows, const void* weight, void* y, cudaStream_t stream) {
    scale_rows_by_tma<<<ROWS, COLUMNS, 0, stream>>>(rows, (const float*)weight, (float*)y);
    return cudaGetLastError();
}
#endif
