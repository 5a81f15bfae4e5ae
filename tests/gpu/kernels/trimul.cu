// Triangle multiplication: gated projections, channels first; a product per channel; norm, projection and gate.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int ROWS = 32, INNER = 16, THREADS = 256;
constexpr float EPSILON = 1e-5f;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Normalise ROWS rows of C values in shared memory, in place: eight threads per row.
template <int C>
__device__ void normalise(float (*x)[C + 1], const float* scale, const float* shift) {
    const int row = threadIdx.x / 8, part = threadIdx.x % 8;
    float sum = 0;
    for (int c = part; c < C; c += 8) sum += x[row][c];
    for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    const float mean = sum / C;
    float squares = 0;
    for (int c = part; c < C; c += 8) squares += (x[row][c] - mean) * (x[row][c] - mean);
    for (int step = 4; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    const float inverse = rsqrtf(squares / C + EPSILON);
    for (int c = part; c < C; c += 8) x[row][c] = (x[row][c] - mean) * inverse * scale[c] + shift[c];
    __syncthreads();
}

// out[i][j] = x[row_i] . w[column_j] for 4 rows and OUT / 32 columns of this thread; x in shared memory, w (OUT, IN).
template <int IN, int OUT>
__device__ void project(float (*x)[IN + 1], const float* w, float (*staged)[OUT + 4], float (*out)[OUT / 32]) {
    constexpr int OWN = OUT / 32;
    const int row = threadIdx.x / 32 * 4, column = threadIdx.x % 32 * OWN;
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < OWN; ++j) out[i][j] = 0;
    for (int begun = 0; begun < IN; begun += INNER) {
        __syncthreads();
        for (int index = threadIdx.x; index < OUT * INNER; index += THREADS)
            staged[index % INNER][index / INNER] = w[(index / INNER) * IN + begun + index % INNER];
        __syncthreads();
        for (int inner = 0; inner < INNER; ++inner)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < OWN; ++j) out[i][j] += x[row + i][begun + inner] * staged[inner][column + j];
    }
}

template <int P, int H>
__global__ void gated_projection(
    const float* z, const float* mask, const float* scale, const float* shift, const float* weight, const float* gate,
    float* y, int64_t area) {
    __shared__ float x[ROWS][P + 1], staged[INNER][H + 4];
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    for (int index = threadIdx.x; index < ROWS * P; index += THREADS) x[index / P][index % P] = z[first * P + index];
    __syncthreads();
    normalise<P>(x, scale, shift);
    float values[4][H / 32], gates[4][H / 32];
    project<P, H>(x, weight, staged, values);
    project<P, H>(x, gate, staged, gates);
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < H / 32; ++j) {
            const int64_t row = first + threadIdx.x / 32 * 4 + i, channel = threadIdx.x % 32 * (H / 32) + j;
            const int64_t at = (row / area * H + channel) * area + row % area;
            y[at] = mask[row] * sigmoid(gates[i][j]) * values[i][j];
        }
}

// y[i][j] = sum over k of a[i][k] b[j][k], per channel; a block makes 64 x 64, a thread 4 x 4.
__global__ void multiply(const float* a, const float* b, float* y, int size) {
    constexpr int TILE = 64;
    __shared__ float left[INNER][TILE + 4], right[INNER][TILE + 4];
    const int64_t base = (int64_t)blockIdx.z * size * size;
    const int row = blockIdx.y * TILE, column = blockIdx.x * TILE;
    const int own_row = threadIdx.x / 16 * 4, own_column = threadIdx.x % 16 * 4;
    float sums[4][4] = {};
    for (int begun = 0; begun < size; begun += INNER) {
        for (int index = threadIdx.x; index < TILE * INNER; index += THREADS) {
            const int r = index / INNER, k = index % INNER;
            left[k][r] = a[base + (int64_t)(row + r) * size + begun + k];
            right[k][r] = b[base + (int64_t)(column + r) * size + begun + k];
        }
        __syncthreads();
        for (int inner = 0; inner < INNER; ++inner)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sums[i][j] += left[inner][own_row + i] * right[inner][own_column + j];
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) y[base + (int64_t)(row + own_row + i) * size + column + own_column + j] = sums[i][j];
}

template <int P, int H>
__global__ void finish(
    const float* products, const float* z, const float* scale, const float* shift, const float* gate,
    const float* out_scale, const float* out_shift, const float* weight, float* y, int64_t area) {
    __shared__ float x[ROWS][P + 1], staged[INNER][P + 4];
    static_assert(P == H, "one buffer serves both");
    const int64_t first = (int64_t)blockIdx.x * ROWS;
    for (int index = threadIdx.x; index < ROWS * H; index += THREADS) {
        const int64_t row = first + index % ROWS;
        x[index % ROWS][index / ROWS] = products[(row / area * H + index / ROWS) * area + row % area];
    }
    __syncthreads();
    normalise<H>(x, out_scale, out_shift);
    float values[4][P / 32], gates[4][P / 32];
    project<H, P>(x, weight, staged, values);
    __syncthreads();
    for (int index = threadIdx.x; index < ROWS * P; index += THREADS) x[index / P][index % P] = z[first * P + index];
    __syncthreads();
    normalise<P>(x, scale, shift);
    project<P, P>(x, gate, staged, gates);
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < P / 32; ++j) {
            const int64_t row = first + threadIdx.x / 32 * 4 + i;
            y[row * P + threadIdx.x % 32 * (P / 32) + j] = sigmoid(gates[i][j]) * values[i][j];
        }
}

template <int P, int H>
int run(const float* const* in, float* y, int batch, int size, cudaStream_t stream) {
    // The shapes of a task never change: the workspace is made once.
    static float* workspace = nullptr;
    const int64_t area = (int64_t)size * size, count = batch * H * area;
    if (workspace == nullptr) {
        const cudaError_t error = cudaMalloc((void**)&workspace, 3 * count * sizeof(float));
        if (error != cudaSuccess) return error;
    }
    float *a = workspace, *b = a + count, *products = b + count;
    const unsigned blocks = (unsigned)(batch * area / ROWS);
    gated_projection<P, H><<<blocks, THREADS, 0, stream>>>(in[0], in[1], in[2], in[3], in[4], in[6], a, area);
    gated_projection<P, H><<<blocks, THREADS, 0, stream>>>(in[0], in[1], in[2], in[3], in[5], in[7], b, area);
    multiply<<<dim3(size / 64, size / 64, batch * H), THREADS, 0, stream>>>(a, b, products, size);
    finish<P, H><<<blocks, THREADS, 0, stream>>>(
        products, in[0], in[2], in[3], in[8], in[9], in[10], in[11], y, area);
    return cudaGetLastError();
}

// z, mask, norm_in (scale, shift), left, right, left_gate, right_gate, gate, norm_out (scale, shift), out.
extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    const int batch = (int)shapes[0][0], size = (int)shapes[0][1];
    const int64_t pair = shapes[0][3], hidden = shapes[4][0];
    const float* const* in = (const float* const*)inputs;
    float* y = (float*)outputs[0];
    if (size % 64 != 0 || pair != hidden) return cudaErrorInvalidValue;
    if (pair == 32) return run<32, 32>(in, y, batch, size, (cudaStream_t)stream);
    if (pair == 64) return run<64, 64>(in, y, batch, size, (cudaStream_t)stream);
    if (pair == 128) return run<128, 128>(in, y, batch, size, (cudaStream_t)stream);
    return cudaErrorInvalidValue;
}
