"""Exported kernels of references that take numbers among their tensors, and kernels that are functions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from evaluators.hardware.target import probe_target
from ksearch_async.export import Winner, check_call, write_module
from messages.base import ConfigError, Language
from messages.calls import CallForm, Calling, ConstantPlace, DictOf, TensorPlace, TupleOf
from messages.tasks import Candidate, SourceFile, TaskSpec, TensorSpec
from tests.contracts.exports import VERDICT

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(5))

    def forward(self, x, eps, y, power):
        return (x + eps) ** power * self.weight + y

def get_inputs():
    return [torch.rand(3, 5), 0.25, torch.rand(3, 5), 2]

def get_init_inputs():
    return []
"""
TASK = TaskSpec(name="powers", source="kernelbench", text=REFERENCE)
TENSORS = (
    TensorSpec(name="x", role="input", shape=(3, 5), dtype="float32"),
    TensorSpec(name="y", role="input", shape=(3, 5), dtype="float32"),
    TensorSpec(name="weight", role="parameter", shape=(5,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(3, 5), dtype="float32"),
)
PLACES = TupleOf(items=(TensorPlace(), ConstantPlace(value=0.25), TensorPlace(), ConstantPlace(value=2)))
NAMES = ("x", "eps", "y", "power")

CPP = """
#include <cmath>
#include <cstdint>
extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    const double eps = *static_cast<const double*>(inputs[1]);
    const float* y = static_cast<const float*>(inputs[2]);
    const int64_t power = *static_cast<const int64_t*>(inputs[3]);
    const float* weight = static_cast<const float*>(inputs[4]);
    float* out = static_cast<float*>(outputs[0]);
    if (shapes[1][0] != 0 || shapes[5][1] != 5) return 1;
    for (int64_t i = 0; i < shapes[2][0] * shapes[2][1]; ++i)
        out[i] = std::pow(x[i] + static_cast<float>(eps), static_cast<float>(power)) * weight[i % shapes[4][0]] + y[i];
    return 0;
}
"""
TVM_FFI = """
#include <cmath>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
using tvm::ffi::TensorView;
static void run(TensorView x, double eps, TensorView y, int64_t power, TensorView w, TensorView out) {
    const float *a = static_cast<float*>(x.data_ptr()), *b = static_cast<float*>(y.data_ptr());
    for (int64_t i = 0; i < 15; ++i)
        static_cast<float*>(out.data_ptr())[i] =
            std::pow(a[i] + (float)eps, (float)power) * static_cast<float*>(w.data_ptr())[i % 5] + b[i];
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ksearch_run, run);
"""
TRITON = """
import triton
import triton.language as tl

@triton.jit
def powers(x, y, w, out, eps, SIZE: tl.constexpr):
    at = tl.arange(0, 16)
    keep = at < SIZE
    base = tl.load(x + at, mask=keep) + eps
    tl.store(out + at, base * base * tl.load(w + at % 5) + tl.load(y + at, mask=keep), mask=keep)

def ksearch_run(x, eps, y, power, weight, output):
    assert power == 2
    powers[(1,)](x, y, weight, output, eps, SIZE=15)
"""
MODULE = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(5))
    def forward(self, x, eps, y, power):
        return (x + eps).pow(power).mul(self.weight).add(y)
"""
CALL = """
import sys; sys.path.insert(0, ".")
import torch
import exported
x, y, weight = torch.rand(3, 5), torch.rand(3, 5), torch.rand(5)
torch.testing.assert_close(exported.forward(x, 0.25, y, 2, weight), (x + 0.25) ** 2 * weight + y)
try:
    exported.forward(x, 0.5, y, 2, weight)
except ValueError as error:
    print(error)
"""


def winner_of(language: Language, text: str, entry_point: str = "ksearch_run") -> Winner:
    kernel = SourceFile(path="kernel.cpp" if language == "cpp" else "kernel.py", text=text)
    return Winner(
        task=TASK,
        tensors=TENSORS,
        call=CallForm(arguments=PLACES, outputs=TensorPlace(), names=NAMES),
        candidate=Candidate(language=language, entry_point=entry_point, files=(kernel,)),
        target=probe_target(language),
        verdict=VERDICT,
        device="CPU",
        purpose="confirm",
        measured_at="2026-11-20T12:00:00+00:00",
    )


def run_exported(folder: Path, winner: Winner, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "exported.py").write_text(write_module(winner), encoding="utf-8")
    environment = {"PATH": "/usr/bin:/bin", "KSEARCH_EXPORT_CACHE": str(folder / "cache"), "TRITON_INTERPRET": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "winner",
    [
        pytest.param(winner_of("cpp", CPP), id="cpp"),
        pytest.param(winner_of("cpp", TVM_FFI), id="tvm-ffi"),
        pytest.param(winner_of("triton", TRITON), id="triton"),
        pytest.param(winner_of("python", MODULE, "ModelNew"), id="module"),
    ],
)
def test_numbers_stand_where_the_reference_takes_them(winner: Winner, tmp_path: Path) -> None:
    done = run_exported(tmp_path, winner, "-c", CALL)
    assert (done.returncode, done.stdout) == (0, "eps is 0.5; the kernel was made for 0.25\n"), done.stderr
    done = run_exported(tmp_path, winner, "exported.py", "--self-test", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 calls agree" in done.stdout


FUNCTION = "def powers(x, weight, eps):\n    return x * weight + eps\n"
OF_FUNCTION = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, weight, eps):
        return x * weight + eps

def get_inputs():
    return [torch.rand(3, 5), torch.rand(5), 0.5]

def get_init_inputs():
    return []
"""


def test_a_function_is_called_and_its_last_numbers_may_be_left_out(tmp_path: Path) -> None:
    places = TupleOf(items=(TensorPlace(), TensorPlace(), ConstantPlace(value=0.5)))
    weight = msgspec.structs.replace(TENSORS[2], role="input")
    winner = msgspec.structs.replace(
        winner_of("python", FUNCTION, "powers"),
        task=msgspec.structs.replace(TASK, text=OF_FUNCTION),
        tensors=(TENSORS[0], weight, TENSORS[3]),
        call=CallForm(calling="function", arguments=places, outputs=TensorPlace(), names=("x", "weight", "eps")),
    )
    script = "import torch, exported; print(exported.forward(torch.ones(3, 5), torch.ones(5)).sum().item())"
    done = run_exported(tmp_path, winner, "-c", f"import sys; sys.path.insert(0, '.'); {script}")
    assert (done.returncode, float(done.stdout or "nan")) == (0, 15 * 1.5), done.stderr
    done = run_exported(tmp_path, winner, "exported.py", "--self-test")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("calling", "argument", "said"),
    [
        ("destination", TensorPlace(), "write to outputs that they are given"),
        ("function", DictOf(keys=("a",), items=(TensorPlace(),)), "more than tensors and numbers"),
        ("module", ConstantPlace(value=None), "more than tensors and numbers"),
    ],
)
def test_what_forward_could_not_take_is_refused(calling: Calling, argument: object, said: str) -> None:
    form = CallForm(calling=calling, arguments=TupleOf(items=(argument,)), outputs=TensorPlace())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=said):
        check_call(TASK, form)


def test_a_number_is_written_such_that_it_is_read_as_it_was() -> None:
    places = TupleOf(items=(TensorPlace(), ConstantPlace(value=1e-6), TensorPlace(), ConstantPlace(value=True)))
    call = CallForm(arguments=places, outputs=TensorPlace(), names=NAMES)
    text = write_module(msgspec.structs.replace(winner_of("cpp", CPP), call=call))
    assert "def forward(x: torch.Tensor, eps: float, y: torch.Tensor, power: bool, weight: torch.Tensor)" in text
    assert "('eps', 1, 1e-06)" in text
