"""`ksearch bench`, and `ksearch eval --role baseline`: sets of problems, with their own references or candidates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ksearch_async.cli import main
from ksearch_async.cli.bench import numbers_of
from messages.base import ConfigError

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, factor):
        return (x * factor).cumsum(1)

rows, columns = 4096, 8192

def get_inputs():
    return [torch.rand(rows, columns), 0.5]

def get_init_inputs():
    return []
"""
RANDOM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)

def get_inputs():
    return [torch.rand(4, 8)]

def get_init_inputs():
    return []
"""
WRONG = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x, factor):
        return x * factor
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "kb" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Scan.py").write_text(PROBLEM)
    (folder / "2_Noise.py").write_text(RANDOM)
    return tmp_path / "kb"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_references_in_their_own_place_are_measured_and_what_cannot_be_judged_counts_as_not_solved(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["bench", "kernelbench", "--level", "1", "--root", str(root), "--num-perf-trials", "9999", "--json"])
    told = json.loads(capsys.readouterr().out)
    scan, noise = told["rows"]
    assert (code, told["size"]) == (1, "cpu")
    assert scan["task"] == "1/1_Scan:cpu"
    assert scan["fate"] in ("measured", "unstable"), scan["reason"]
    assert noise["fate"] == "unusable"
    assert "the reference is random" in noise["reason"]
    (score,) = told["scores"]
    assert (score["baseline"], score["problems"], score["correct"]) == ("eager", 2, 1)
    assert score["fast_p"]["0.0"] == 0.5
    assert told["fewer_trials"]["pairs"] == (["1/1_Scan:cpu"] if scan["fate"] == "measured" else [])


@pytest.mark.long
@pytest.mark.timeout(300)
def test_candidates_of_a_folder_are_evaluated_and_a_missing_one_counts(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generations = tmp_path / "generations"
    generations.mkdir()
    (generations / "level_1_problem_1_sample_0_kernel.py").write_text(WRONG)
    words = ["bench", "kernelbench", "--level", "1", "--root", str(root), "--candidates", str(generations)]
    assert main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:2] == ["1/1_Scan:cpu", "wrong"]
    assert lines[2].split()[:2] == ["2/2_Noise:cpu".replace("2/", "1/"), "no_candidate"]
    assert "against    eager: 0 of 2 correct; geometric mean of correct none is timed" in lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--level", "4"], "level 4 cannot be evaluated"),
        (["--level", "1", "--ids", "7-9"], "level 1 has none of these problems"),
        (["--level", "1", "--ids", "one"], "--ids: expected numbers and ranges, not 'one'"),
        (["--level", "1", "--search", "--candidates", "x"], "--search finds candidates, and --candidates names them"),
    ],
)
def test_what_names_no_problems_is_refused(
    root: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "kernelbench", "--root", str(root), *words]) == 2
    assert said in capsys.readouterr().err


def test_numbers_may_be_ranges() -> None:
    assert numbers_of("3,1-2, 2") == (1, 2, 3)
    with pytest.raises(ConfigError):
        numbers_of("1-")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_reference_may_take_a_candidates_place_though_it_calls_the_library(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = f"kernelbench:{root}/1/1:cpu"
    assert main(["eval", problem, "--role", "baseline", "--json"]) in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] in ("measured", "unstable"), told["reason"]
