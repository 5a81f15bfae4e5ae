// class: faulty
// mechanism: asks for 2048 threads per block
// expect: crashed
#include "honest.cuh"
KERNEL {
    scale_rows<<<ROWS, 2048, 0, (cudaStream_t)stream>>>((const float*)inputs[0], (const float*)inputs[1], (float*)outputs[0]);
    return cudaGetLastError();
}
