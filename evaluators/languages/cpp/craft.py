"""C++ for one CPU host."""

from __future__ import annotations

from evaluators.hardware.roofline import Hardware

RULES = """\
- Write C++17 for one CPU host. OpenMP is available (`#pragma omp`); the number of threads is set from outside.
- Compiled with -O3, -fopenmp and the -march of the machine that runs it, without -ffast-math: reductions and calls of
  libm vectorise only if you write them so that they may.
- Use only the standard library and the compiler's intrinsics. No BLAS, no torch, no inline build steps."""

EXAMPLE = """\
(The sums of a matrix's rows.) Each thread sums whole rows; the reduction is told to be one, so it vectorises.

```cpp path=kernel.cpp
#include <cstdint>

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    float* sums = static_cast<float*>(outputs[0]);
    const int64_t rows = shapes[0][0], columns = shapes[0][1];
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        float total = 0.0f;
#pragma omp simd reduction(+ : total)
        for (int64_t i = 0; i < columns; ++i) total += x[row * columns + i];
        sums[row] = total;
    }
    return 0;
}
```"""

_BY_LANES = {
    16: "The vector units take 16 fp32 at once: enough independent accumulators (4 or more) hide the latency of an "
    "addition. 512-bit code may lower the clock of older cores: compare with 256 bits where little is computed.",
    8: "The vector units take 8 fp32 at once and fuse multiply and add: 4 or more independent accumulators hide the "
    "latency of an addition.",
    4: "The vector units take 4 fp32 at once: do not use intrinsics of wider ones, they end the process.",
}


def advice(hardware: Hardware) -> tuple[str, ...]:
    """Return advice for this CPU."""
    lines = [_BY_LANES[hardware.simd.lanes_fp32]] if hardware.simd else []
    if hardware.cpu is not None and hardware.cpu.l2_bytes:
        kib = hardware.cpu.l2_bytes // 2 // 1024
        lines.append(f"What is read again soon should fit half of the L2: tiles of up to {kib} KiB for each thread.")
    return tuple(lines)
