// A product of matrices with bias, GELU and scale behind it: a block makes 128 x 128 of the result, a thread 8 x 8.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int TILE = 128, INNER = 8, PER_THREAD = 8, ACROSS = TILE / PER_THREAD, THREADS = ACROSS * ACROSS;
constexpr float SCALE = 1.25f;

// Lay INNER columns of TILE rows of a row-major matrix into shared memory, the inner index first.
__device__ void stage(float (*to)[TILE + 4], const float* from, int row, int rows, int column, int columns) {
    for (int index = threadIdx.x; index < TILE * INNER; index += THREADS) {
        const int r = index / INNER, c = index % INNER;
        const bool inside = row + r < rows && column + c < columns;
        to[c][r] = inside ? from[(int64_t)(row + r) * columns + column + c] : 0.0f;
    }
}

__global__ void product(const float* x, const float* weight, const float* bias, float* y, int m, int n, int k) {
    __shared__ float left[INNER][TILE + 4], right[INNER][TILE + 4];
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    const int own_row = threadIdx.x / ACROSS * PER_THREAD, own_column = threadIdx.x % ACROSS * PER_THREAD;
    float sums[PER_THREAD][PER_THREAD] = {};
    for (int begun = 0; begun < k; begun += INNER) {
        stage(left, x, row, m, begun, k);
        stage(right, weight, column, n, begun, k);
        __syncthreads();
        for (int inner = 0; inner < INNER; ++inner) {
            float a[PER_THREAD], b[PER_THREAD];
            for (int i = 0; i < PER_THREAD; ++i) a[i] = left[inner][own_row + i];
            for (int j = 0; j < PER_THREAD; ++j) b[j] = right[inner][own_column + j];
            for (int i = 0; i < PER_THREAD; ++i)
                for (int j = 0; j < PER_THREAD; ++j) sums[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i)
#pragma unroll
        for (int j = 0; j < PER_THREAD; ++j) {
            const int r = row + own_row + i, c = column + own_column + j;
            if (r < m && c < n) {
                const float value = sums[i][j] + bias[c];
                y[(int64_t)r * n + c] = SCALE * 0.5f * value * (1.0f + erff(value * 0.7071067811865476f));
            }
        }
}

extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    const int m = (int)shapes[0][0], k = (int)shapes[0][1], n = (int)shapes[1][0];
    const dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    product<<<grid, THREADS, 0, (cudaStream_t)stream>>>(
        (const float*)inputs[0], (const float*)inputs[1], (const float*)inputs[2], (float*)outputs[0], m, n, k);
    return cudaGetLastError();
}
