"""`tasks`: what is bundled, and what a problem asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluators.tasks import bundled_tasks, load_task
from ksearch_async.cli import main
from ksearch_async.evaluation.tasks import facts_of
from messages.tasks import TaskSpec

OWN = '''
"""Something of my own."""
import torch
class Model(torch.nn.Module):
    def forward(self, left, right):
        return left + right

def get_inputs():
    raise SystemExit("it was run")

def get_init_inputs():
    return []
'''


def test_every_bundled_problem_is_listed_with_inputs_and_both_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tasks"]
    assert tuple(task["name"] for task in told) == bundled_tasks()
    for task in told:
        assert task["summary"]
        assert task["inputs"]
        assert list(task["sizes"])[:2] == ["cpu", "gpu"]
    assert main(["tasks"]) == 0
    printed = capsys.readouterr().out
    assert all(f"{name}\n" in printed for name in bundled_tasks())


def test_a_problem_is_shown_with_its_text_and_how_to_search_on_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", "rmsnorm_silu:gpu"]) == 0
    printed = capsys.readouterr().out
    assert 'WORKLOADS = {"gpu": {"rows": 32768, "hidden": 8192}}' in printed
    assert "ksearch run rmsnorm_silu:gpu" in printed


def test_a_file_is_shown_without_being_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(OWN)
    assert main(["tasks", "show", str(tmp_path / "own.py"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["inputs"], told["sizes"]) == ("own", ["left", "right"], {})
    assert told["summary"] == "Something of my own."


def test_tensors_are_listed_by_running_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", "softmax_rows", "--tensors", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(tensor["role"], tensor["shape"]) for tensor in told["tensors"]] == [
        ("input", [2048, 1024]),
        ("output", [2048, 1024]),
    ]


def test_a_text_that_says_nothing_of_itself_has_no_facts() -> None:
    assert facts_of(TaskSpec(name="bare", source="kernelbench", text="Model = 1")).inputs == ()


def test_an_unknown_problem_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", "rmsnorm_sillu"]) == 2
    assert "did you mean 'rmsnorm_silu'?" in capsys.readouterr().err


def test_the_sizes_shown_are_those_of_the_text() -> None:
    facts = facts_of(load_task("rmsnorm_silu:gpu"))
    assert list(facts.sizes) == ["gpu"]
    assert facts.sizes["gpu"] == {"rows": 32768, "hidden": 8192}


def test_what_a_model_is_told_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "show", "softmax_rows", "--prompt"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Task `softmax_rows`")
    assert "## Calling contract" in printed
    assert "ksearch run" not in printed
