"""Exported modules in CUDA: without a GPU, what can be said is that they import, and that what they build is built."""

from __future__ import annotations

import ctypes.util
import shutil
from pathlib import Path

import pytest

from ksearch_async.export import Winner
from messages.tasks import Candidate, SourceFile, Target
from tests.contracts.exports import TASK, TENSORS, VERDICT, ExportContract, lay

HAS_DRIVER = ctypes.util.find_library("cuda") is not None

KERNEL = """
#include <cstdint>
#include <cuda_runtime.h>

__global__ void scale_rows(const float* x, const float* weight, float* y, int64_t n) {
    __shared__ float sums[256];
    const float* row = x + blockIdx.x * n;
    float sum = 0;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x) sum += fabsf(row[c]);
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    const float scale = 1.0f / (1.0f + sums[0] / n);
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x) y[blockIdx.x * n + c] = row[c] * weight[c] * scale;
}

extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    scale_rows<<<shapes[0][0], 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float*>(inputs[0]), static_cast<const float*>(inputs[1]), static_cast<float*>(outputs[0]),
        shapes[0][1]);
    return static_cast<int>(cudaGetLastError());
}
"""

BUILD = """
import sys; sys.path.insert(0, ".")
import ctypes
import exported

product = exported.built(*exported.build_command(exported.ARCHITECTURE))
ctypes.CDLL(str(product)).ksearch_run
print(product.stat().st_size)
"""


def won() -> Winner:
    return Winner(
        task=TASK,
        tensors=TENSORS,
        candidate=Candidate(
            language="cuda", entry_point="ksearch_run", files=(SourceFile(path="kernel.cu", text=KERNEL),)
        ),
        target=Target(arch="sm_90", march="", toolchain="nvcc", device="NVIDIA H200"),
        verdict=VERDICT,
        device="NVIDIA H200",
        purpose="confirm",
        measured_at="2026-11-20T12:00:00+00:00",
    )


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DRIVER, reason="this host has no NVIDIA driver")
class TestExportedCuda(ExportContract):
    device = "cuda"
    spoil = ("* weight[c] * scale", "* weight[c] * scale * 1.01f")

    @pytest.fixture(scope="class")
    @classmethod
    def winner(cls) -> Winner:
        return won()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return lay(tmp_path, won())


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_what_it_tells_the_compiler_makes_a_library_with_the_entry_point(folder: Path) -> None:
    done = ExportContract().python(folder, "-c", BUILD)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.skipif(HAS_DRIVER, reason="this host has NVIDIA's driver")
def test_without_a_gpu_it_imports_and_says_what_it_lacks(folder: Path) -> None:
    done = ExportContract().python(folder, "exported.py", "--self-test")
    assert (done.returncode, done.stderr) == (
        1,
        "error: kernel 'small' needs an NVIDIA GPU, and PyTorch finds none here\n",
    )
