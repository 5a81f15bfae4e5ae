"""C++17 with OpenMP for the CPU: raw `extern "C"` or tvm-ffi entry points."""

from __future__ import annotations

from evaluators.languages.base import LanguageSpec
from evaluators.languages.cpp import craft
from evaluators.languages.cpp.support import CPP

SPEC = LanguageSpec(
    main_path="kernel.cpp",
    suffixes=(".cpp", ".cc", ".cxx"),
    fences=("cpp", "c++", "cc", "cxx", "c", "h", "hpp"),
    is_native=True,
    supports={"cpu": CPP},
    craft=craft,
    proof="""
#include <cstdint>

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    float* y = static_cast<float*>(outputs[0]);
    const int64_t rows = shapes[0][0], columns = shapes[0][1];
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += x[r * columns + c];
        const float mean = static_cast<float>(sum / columns);
        for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = 2.0f * x[r * columns + c] + mean;
    }
    return 0;
}
""",
    proof_part="2.0f * x",
)
