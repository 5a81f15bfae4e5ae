"""What evaluators are measured with on a CPU: a row normalisation, candidates of every fate, another reduction,
and a matrix product."""

from __future__ import annotations

from tests.evaluators.words import COLUMNS, ROWS, SMALL_TASK

TASK = SMALL_TASK.text.replace(f"rand({ROWS}, {COLUMNS})", "randn(1024, 1024)").replace(f"[{COLUMNS}]", "[1024]")

REDUCTION = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        a = torch.tanh(x) * y
        b = (a - a.mean(dim=-1, keepdim=True)).pow(2)
        return (b + x).sum(dim=-1)


def get_inputs():
    return [torch.randn(1024, 1024), torch.randn(1024, 1024)]


def get_init_inputs():
    return []
"""
"""Moves much memory and returns little: what a module hands over is not what it costs."""

PASSING = """
#include <cmath>
#include <cstdint>

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    const float* weight = static_cast<const float*>(inputs[1]);
    float* y = static_cast<float*>(outputs[0]);
    const int64_t rows = shapes[2][0], columns = shapes[2][1];
    // before
    #pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; ++r) {
        float sum = 0;
        #pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < columns; ++c) sum += std::fabs(x[r * columns + c]);
        const float scale = 1.0f / (1.0f + sum / columns);
        #pragma omp simd
        for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * weight[c] * scale;
    }
    return 0;
}
"""
PRODUCT = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(320, 320), torch.randn(320, 320)]


def get_init_inputs():
    return []
"""
"""All of it lies in the caches: how fast this host's memory is at the moment is no matter."""

MULTIPLYING = """
#include <cstdint>

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* a = static_cast<const float*>(inputs[0]);
    const float* b = static_cast<const float*>(inputs[1]);
    float* c = static_cast<float*>(outputs[0]);
    const int64_t n = shapes[0][0];
    // threads
    for (int64_t i = 0; i < n; i += 4) {
        float* row = c + i * n;
        for (int64_t j = 0; j < 4 * n; ++j) row[j] = 0;
        for (int64_t k = 0; k < n; ++k) {
            const float* other = b + k * n;
            const float a0 = a[i * n + k], a1 = a[(i + 1) * n + k], a2 = a[(i + 2) * n + k], a3 = a[(i + 3) * n + k];
            #pragma omp simd
            for (int64_t j = 0; j < n; ++j) {
                const float value = other[j];
                row[j] += a0 * value;
                row[n + j] += a1 * value;
                row[2 * n + j] += a2 * value;
                row[3 * n + j] += a3 * value;
            }
        }
    }
    return 0;
}
"""
"""Four rows at once, on one thread."""

LARGE_PRODUCT = PRODUCT.replace("320", "640")
"""Takes some milliseconds, for which it is worth to wake threads."""
SHORT_PRODUCT = PRODUCT.replace("320", "384")
"""Takes one, of which waking them is a part."""
MULTIPLYING_TOGETHER = MULTIPLYING.replace("// threads", "#pragma omp parallel for schedule(static)")

SLOW = "volatile float sink = 0; for (int64_t i = 0; i < 200 * rows * columns; ++i) sink = sink + 1;"
SOURCES = {
    "passing": PASSING,
    "outpaced": PASSING.replace("// before", SLOW),
    "wrong": PASSING.replace("* weight[c] * scale", "* weight[c] * scale * 0.5f"),
    "not_building": PASSING.replace("return 0;", "return nothing_of_that_name;"),
}
FATES = {
    "passing": {"measured", "unstable"},
    "outpaced": {"outpaced"},
    "wrong": {"wrong"},
    "not_building": {"did_not_build"},
}
