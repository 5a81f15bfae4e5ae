// Attention of one query per head over a cache: parts of the sequence side by side, then their results put together.
// A warp takes a key at a time for the four heads that share it; its lanes hold D / 32 dimensions each.
#include <cstdint>
#include <cuda_runtime.h>

constexpr int PARTS = 16, HEADS = 4, WARPS = 4, THREADS = 32 * WARPS;
constexpr float LEAST = -1e30f;

template <int D>
struct State {
    float peak[HEADS], total[HEADS], summed[HEADS][D / 32];
};

template <int D>
__global__ void attend(
    const float* q, const float* k, const float* v, const int64_t* position, float* sums, float* peaks, float* totals,
    int groups, int length, float scale) {
    constexpr int OWN = D / 32;
    __shared__ float warp_peak[WARPS][HEADS], warp_total[WARPS][HEADS], warp_sum[WARPS][HEADS][D];
    const int group = blockIdx.x, part = blockIdx.y, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int part_length = (length + PARTS - 1) / PARTS;
    const int begin = part * part_length;
    const int last = (int)position[group / groups];
    const int end = min(min(begin + part_length, length), last + 1);
    float query[HEADS][OWN];
    State<D> own;
    for (int head = 0; head < HEADS; ++head) {
        own.peak[head] = LEAST;
        own.total[head] = 0;
        for (int i = 0; i < OWN; ++i) {
            query[head][i] = scale * q[((int64_t)group * HEADS + head) * D + lane + 32 * i];
            own.summed[head][i] = 0;
        }
    }
    for (int key = begin + warp; key < end; key += WARPS) {
        const int64_t at = ((int64_t)group * length + key) * D + lane;
        float key_of[OWN], value_of[OWN];
        for (int i = 0; i < OWN; ++i) {
            key_of[i] = k[at + 32 * i];
            value_of[i] = v[at + 32 * i];
        }
        for (int head = 0; head < HEADS; ++head) {
            float score = 0;
            for (int i = 0; i < OWN; ++i) score += query[head][i] * key_of[i];
            for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(0xffffffffu, score, step);
            const float peak = fmaxf(own.peak[head], score);
            const float kept = expf(own.peak[head] - peak), weight = expf(score - peak);
            own.total[head] = own.total[head] * kept + weight;
            for (int i = 0; i < OWN; ++i) own.summed[head][i] = own.summed[head][i] * kept + weight * value_of[i];
            own.peak[head] = peak;
        }
    }
    for (int head = 0; head < HEADS; ++head) {
        if (lane == 0) {
            warp_peak[warp][head] = own.peak[head];
            warp_total[warp][head] = own.total[head];
        }
        for (int i = 0; i < OWN; ++i) warp_sum[warp][head][lane + 32 * i] = own.summed[head][i];
    }
    __syncthreads();
    const int head = warp;  // as many warps as heads
    float peak = LEAST, total = 0;
    for (int other = 0; other < WARPS; ++other) peak = fmaxf(peak, warp_peak[other][head]);
    for (int other = 0; other < WARPS; ++other) total += warp_total[other][head] * expf(warp_peak[other][head] - peak);
    const int64_t place = ((int64_t)group * HEADS + head) * PARTS + part;
    for (int i = 0; i < OWN; ++i) {
        float summed = 0;
        for (int other = 0; other < WARPS; ++other)
            summed += warp_sum[other][head][lane + 32 * i] * expf(warp_peak[other][head] - peak);
        sums[place * D + lane + 32 * i] = summed;
    }
    if (lane == 0) {
        peaks[place] = peak;
        totals[place] = total;
    }
}

template <int D>
__global__ void put_together(const float* sums, const float* peaks, const float* totals, float* y) {
    const int64_t head = blockIdx.x;
    float peak = LEAST, total = 0, summed = 0;
    for (int part = 0; part < PARTS; ++part) peak = fmaxf(peak, peaks[head * PARTS + part]);
    for (int part = 0; part < PARTS; ++part) {
        const float share = expf(peaks[head * PARTS + part] - peak);
        total += share * totals[head * PARTS + part];
        summed += share * sums[(head * PARTS + part) * D + threadIdx.x];
    }
    y[head * D + threadIdx.x] = summed / total;
}

template <int D>
int run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes, cudaStream_t stream) {
    const int batch = (int)shapes[0][0], heads = (int)shapes[0][1];
    const int groups = (int)shapes[1][1], length = (int)shapes[1][2];
    if (heads != groups * HEADS) return cudaErrorInvalidValue;
    // The shapes of a task never change: the workspace is made once.
    static float* workspace = nullptr;
    const int64_t places = (int64_t)batch * heads * PARTS;
    if (workspace == nullptr) {
        const cudaError_t error = cudaMalloc((void**)&workspace, places * (D + 2) * sizeof(float));
        if (error != cudaSuccess) return error;
    }
    float *sums = workspace, *peaks = sums + places * D, *totals = peaks + places;
    attend<D><<<dim3(batch * groups, PARTS), THREADS, 0, stream>>>(
        (const float*)inputs[0], (const float*)inputs[1], (const float*)inputs[2], (const int64_t*)inputs[3], sums,
        peaks, totals, groups, length, 1.0f / sqrtf((float)D));
    put_together<D><<<batch * heads, D, 0, stream>>>(sums, peaks, totals, (float*)outputs[0]);
    return cudaGetLastError();
}

extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    const int64_t dim = shapes[0][2];
    if (dim == 64) return run<64>(inputs, outputs, shapes, (cudaStream_t)stream);
    if (dim == 128) return run<128>(inputs, outputs, shapes, (cudaStream_t)stream);
    return cudaErrorInvalidValue;
}
