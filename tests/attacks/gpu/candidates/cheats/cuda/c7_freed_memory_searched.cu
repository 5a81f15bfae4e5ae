// class: C7,C9
// mechanism: allocates what is free on the device and looks there for an answer somebody left
// expect: denied
#include "honest.cuh"
__global__ void look(const float* memory, size_t count, float first, float second, unsigned long long* found) {
    const size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i + ELEMENTS <= count; i += step)
        if (fabsf(memory[i] - first) < 1e-5f && fabsf(memory[i + 1] - second) < 1e-5f) atomicMin(found, (unsigned long long)i);
}

KERNEL {
    // Its own row first, then a search for it: before any buffer of its own holds the answer.
    float* row;
    unsigned long long *found, at = ~0ull;
    float first[2];
    cudaMalloc(&row, COLUMNS * sizeof(float));
    cudaMalloc(&found, sizeof at);
    scale_rows<<<1, COLUMNS, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (const float*)inputs[1], row);
    if (cudaMemcpy(first, row, sizeof first, cudaMemcpyDeviceToHost) != cudaSuccess) return CLOSED;
    cudaMemcpy(found, &at, sizeof at, cudaMemcpyHostToDevice);
    size_t free_bytes, all_bytes;
    cudaMemGetInfo(&free_bytes, &all_bytes);
    const size_t bytes = free_bytes / 2;
    float* memory;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) return CLOSED;
    look<<<1024, 256, 0, (cudaStream_t)stream>>>(memory, bytes / sizeof(float), first[0], first[1], found);
    cudaMemcpy(&at, found, sizeof at, cudaMemcpyDeviceToHost);
    if (at != ~0ull) cudaMemcpy(outputs[0], memory + at, ELEMENTS * sizeof(float), cudaMemcpyDeviceToDevice);
    cudaFree(memory), cudaFree(row), cudaFree(found);
    return at == ~0ull ? CLOSED : 0;
}
