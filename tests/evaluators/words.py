"""A small task and C++ sources for it, right and wrong in many ways."""

from __future__ import annotations

from msgspec.structs import replace

from messages.commands import BuildCandidate, EvaluateCandidate
from messages.tasks import Candidate, SourceFile, Target, TaskSpec

ROWS, COLUMNS = 64, 256

SMALL_TASK = TaskSpec(
    name="small",
    source="kernelbench",
    text=f"""
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(columns))

    def forward(self, x):
        return x * self.weight / (1 + x.abs().mean(dim=-1, keepdim=True))


def get_inputs():
    return [torch.rand({ROWS}, {COLUMNS})]


def get_init_inputs():
    return [{COLUMNS}]
""",
)

SLEEPY_TASK = replace(
    SMALL_TASK,
    name="sleepy",
    text=SMALL_TASK.text.replace("return x *", "__import__('time').sleep(0.006); return x *"),
)

RIGHT = """
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    const float* weight = static_cast<const float*>(inputs[1]);
    float* y = static_cast<float*>(outputs[0]);
    const int64_t rows = shapes[2][0], columns = shapes[2][1];
    // before
    for (int64_t r = 0; r < rows; ++r) {
        float sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += std::fabs(x[r * columns + c]);
        const float scale = 1.0f / (1.0f + sum / columns);
        for (int64_t c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * weight[c] * scale;
    }
    // after
    return 0;
}
"""

TVM_FFI = """
#include <cmath>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/tvm_ffi.h>

void run(tvm::ffi::TensorView x, tvm::ffi::TensorView weight, tvm::ffi::TensorView y) {
    if (x.ndim() != 2 || y.size(1) != x.size(1)) TVM_FFI_THROW(ValueError) << "strange shapes";
    const float* a = static_cast<const float*>(x.data_ptr());
    const float* w = static_cast<const float*>(weight.data_ptr());
    float* out = static_cast<float*>(y.data_ptr());
    const int64_t rows = x.size(0), columns = x.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        float sum = 0;
        for (int64_t c = 0; c < columns; ++c) sum += std::fabs(a[r * columns + c]);
        for (int64_t c = 0; c < columns; ++c) out[r * columns + c] = a[r * columns + c] * w[c] / (1 + sum / columns);
    }
    // after
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(ksearch_run, run);
"""


def cpp(text: str, **more: str) -> Candidate:
    files = [SourceFile(path="main.cpp", text=text)]
    files.extend(SourceFile(path=path.replace("_", "."), text=content) for path, content in more.items())
    return Candidate(language="cpp", entry_point="ksearch_run", files=tuple(files))


def after(statement: str) -> str:
    """The right program, with a statement behind its work."""
    return RIGHT.replace("// after", statement)


def before(statement: str) -> str:
    """The right program, with a statement before its work."""
    return RIGHT.replace("// before", statement)


def build_job(candidate: Candidate, target: Target) -> BuildCandidate:
    return BuildCandidate(job_id="j1", run_id="r1", candidate=candidate, target=target)


def evaluate_job(
    candidate: Candidate, artifact_id: str, target: Target, task: TaskSpec = SMALL_TASK
) -> EvaluateCandidate:
    return EvaluateCandidate(
        job_id="j2", run_id="r1", task=task, candidate=candidate, artifact_id=artifact_id, target=target
    )
