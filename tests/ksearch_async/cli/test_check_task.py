"""`check-task`: what is said of a task, and what `eval` does with one that is unfit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ksearch_async.cli import main

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(32))

    def forward(self, x):
        return {formula}

def get_inputs():
    return [torch.rand(8, 32)]

def get_init_inputs():
    return []
"""
KERNEL = """
#include <cstdint>
extern "C" int ksearch_run(const void* const*, void* const* outputs, const int64_t* const*) {
    for (int i = 0; i < 8 * 32; ++i) static_cast<float*>(outputs[0])[i] = 0;
    return 0;
}
"""


def problem(folder: Path, formula: str) -> str:
    path = folder / "own.py"
    path.write_text(PROBLEM.format(formula=formula))
    return str(path)


def test_a_fit_task_ends_with_0_and_shows_what_its_output_depends_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-task", problem(tmp_path, "x.exp() * self.weight")]) == 0
    printed = capsys.readouterr().out
    assert "verdict    fit" in printed
    assert "tolerance  strict" in printed
    assert "moves 100% of the outputs" in printed


def test_an_unfit_task_ends_with_1_and_with_its_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = problem(tmp_path, "x.exp() * self.weight * 1e-5")
    assert main(["check-task", task, "--tolerance", "flashinfer", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["fitness"] in {"marked", "refused"}
    assert (told["tolerance"], told["task"], told["bytes_moved"]) == ("flashinfer", "own", 2176)
    assert {answer["name"] for answer in told["answers"]} >= {"zeros", "the mean everywhere", "input x"}
    assert [one["tensor"] for one in told["influences"]] == ["x", "weight"]


def test_a_gpu_that_is_not_there_is_not_the_tasks_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-task", "softmax_rows", "--device", "cuda:99"]) == 2
    said = capsys.readouterr().err
    assert "cuda:99" in said
    assert "problem 'softmax_rows'" not in said


def test_an_unknown_tolerance_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-task", "softmax_rows", "--tolerance", "lax"]) == 2
    assert "unknown tolerance profile 'lax'" in capsys.readouterr().err


@pytest.mark.long
def test_eval_refuses_a_task_that_zeros_would_pass_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = problem(tmp_path, "(x * self.weight).clamp(max=-9).clamp(min=0)")
    source = tmp_path / "zeros.cpp"
    source.write_text(KERNEL)
    assert main(["eval", task, str(source)]) == 2
    told = capsys.readouterr().err
    assert "cannot tell a kernel from an answer that computes nothing: zeros: passes every check" in told
    assert "--allow-trivial" in told
    main(["eval", task, str(source), "--allow-trivial", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] in {"measured", "unstable"}
    assert "zeros: passes every check" in printed["marks"]
