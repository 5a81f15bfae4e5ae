"""Candidates in a folder of generations, and candidates as files for the upstream's harness."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.tasks.kernelbench.packing import find_candidate, write_submission
from messages.base import ConfigError, Language
from messages.tasks import Candidate, SourceFile, TaskSpec, TensorSpec


def test_files_are_found_by_the_upstreams_names_and_by_number(tmp_path: Path) -> None:
    for name in ("level_1_problem_3_sample_0_kernel.py", "level_1_problem_3_sample_1_kernel.py", "4_mine.cu", "14.cpp"):
        (tmp_path / name).touch()
    assert find_candidate(tmp_path, 1, 3) == tmp_path / "level_1_problem_3_sample_0_kernel.py"
    assert find_candidate(tmp_path, 1, 3, sample=1) == tmp_path / "level_1_problem_3_sample_1_kernel.py"
    assert find_candidate(tmp_path, 2, 3) is None
    assert find_candidate(tmp_path, 2, 4) == tmp_path / "4_mine.cu"
    assert find_candidate(tmp_path, 1, 1) is None


def test_two_files_for_one_problem_are_refused(tmp_path: Path) -> None:
    (tmp_path / "4.py").touch()
    (tmp_path / "4_other.py").touch()
    with pytest.raises(ConfigError, match=r"several candidates for problem 4: 4.py, 4_other.py"):
        find_candidate(tmp_path, 1, 4)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the candidates' folder"):
        find_candidate(tmp_path / "none", 1, 4)


PROBLEM = '''import torch
import torch.nn as nn

scale = 2.0  # twice


def doubled(x):
    """Forward pass of a doubling."""
    return x * scale


class Model(nn.Module):
    """The forward pass: "twice" the rows' scaling."""

    def __init__(self, columns):
        super().__init__()
        self.first = nn.Linear(1, 1)
        self.weight = nn.Parameter(torch.rand(columns))

    def forward(self, x):
        """Pass."""
        return doubled(x) * self.weight


def get_inputs():
    return [torch.rand(4, 32)]


def get_init_inputs():
    return [32]
'''
KERNEL = """import triton
import triton.language as tl


@triton.jit
def scaled(x, weight, out, columns: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, columns)
    value = tl.load(x + row * columns + column) * 2.0 * tl.load(weight + column)
    tl.store(out + row * columns + column, value)


def ksearch_run(x, weight, first_weight, first_bias, out):
    scaled[(x.shape[0],)](x, weight, out, x.shape[1])
"""
TENSORS = (
    TensorSpec(name="x", role="input", shape=(4, 32), dtype="float32"),
    TensorSpec(name="weight", role="parameter", shape=(32,), dtype="float32"),
    TensorSpec(name="first.weight", role="parameter", shape=(1, 1), dtype="float32"),
    TensorSpec(name="first.bias", role="parameter", shape=(1,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4, 32), dtype="float32"),
)
AS_UPSTREAM_DOES = """
import importlib.util, sys, torch

def load(path):
    spec = importlib.util.spec_from_file_location(path.rsplit("/", 1)[1][:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

problem, submission = load(sys.argv[1]), load(sys.argv[2])
assert not {"scale", "doubled", "get_inputs", "Model"} & set(vars(submission))
torch.manual_seed(42)
model = problem.Model(*problem.get_init_inputs())
torch.manual_seed(42)
new = submission.ModelNew(*problem.get_init_inputs())
inputs = problem.get_inputs()
with torch.no_grad():
    assert torch.allclose(model(*inputs), new(*inputs), atol=1e-4, rtol=1e-4)
"""


def candidate(language: Language, *texts: str) -> Candidate:
    files = tuple(SourceFile(path=f"{index}.txt", text=text) for index, text in enumerate(texts))
    return Candidate(language=language, entry_point="ksearch_run", files=files)


def test_a_triton_kernel_becomes_a_file_that_is_right_as_the_upstream_calls_it(tmp_path: Path) -> None:
    """Whatever names the problem has at its top level stay its own: the upstream runs some files in one namespace."""
    problem, submission = tmp_path / "problem.py", tmp_path / "submission.py"
    problem.write_text(PROBLEM)
    text = write_submission(
        candidate("triton", KERNEL), TaskSpec(name="t", source="kernelbench", text=PROBLEM), TENSORS
    )
    submission.write_text(text)
    assert not re.search(r"\bpass\b|\btry\s*:", text)
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-c", AS_UPSTREAM_DOES, str(problem), str(submission)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_torch_module_is_a_submission_as_it_is() -> None:
    task = TaskSpec(name="t", source="kernelbench", text=PROBLEM)
    assert write_submission(candidate("python", "class ModelNew: ..."), task, TENSORS) == "class ModelNew: ...\n"


def test_a_cuda_kernel_is_compiled_by_the_file_itself() -> None:
    task = TaskSpec(name="t", source="kernelbench", text=PROBLEM)
    text = write_submission(candidate("cuda", 'extern "C" int ksearch_run() { return 0; }'), task, TENSORS)
    compile(text, "submission.py", "exec")
    assert "load_inline(" in text
    assert 'extern "C" int ksearch_run()' in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (candidate("cpp", "int ksearch_run();"), "is C\\+\\+ for a CPU"),
        (candidate("triton", KERNEL, "more"), "has 2 files"),
        (candidate("cuda", "TVM_FFI_DLL_EXPORT_TYPED_FUNC(ksearch_run, f)"), "tvm-ffi"),
    ],
)
def test_what_the_harness_has_no_place_for_is_refused(given: Candidate, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        write_submission(given, TaskSpec(name="t", source="kernelbench", text=PROBLEM), TENSORS)
