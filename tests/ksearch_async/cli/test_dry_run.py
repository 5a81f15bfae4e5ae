"""`run --dry-run`: the whole check of a start, and nothing of a search."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ksearch_async.cli import main
from ksearch_async.settings.effort import EFFORTS

PLUS_ONE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("KSEARCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plus_one.py").write_text(PLUS_ONE)
    return tmp_path


def test_a_dry_run_says_settings_and_origins_and_makes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "plus_one.py", "--effort", "quick", "--branches", "2", "--dry-run", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["config"]["search"]["budget"]["max_rounds"] == EFFORTS["quick"]["search.budget.max_rounds"]
    assert told["origins"]["search.budget.max_rounds"] == "effort quick"
    assert (told["config"]["search"]["branches"], told["origins"]["search.branches"]) == (2, "--branches")
    assert [tensor["shape"] for tensor in told["task"]["tensors"]] == [[8, 8], [8, 8]]
    assert told["forecast"]["coder_calls"] == 16
    assert told["earlier"] is None
    assert [path.name for path in folder.iterdir()] == ["plus_one.py"]


def test_a_dry_run_is_a_page_for_people_that_says_what_is_set_for_each_of_several_models(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "two.toml").write_text(
        '[model]\nbase_url = "http://127.0.0.1:9/v1"\nname = "large"\n'
        '[[model.coder.members]]\nname = "small"\nweight = 3\n[[model.coder.members]]\nname = "large"\n'
    )
    assert main(["run", "plus_one.py", "--dry-run", "--world-model", "off", "-c", "two.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "task       plus_one (cpp)"
    assert "calls      40 or more to write, 0 to plan" in lines
    assert "           60 in a row that bring nothing to evaluate end the search" in lines
    table = [line.split() for line in lines]
    assert ["search.world_model", "off", "--world-model"] in table
    assert ["search.confirm", "true", "default"] in table
    (row,) = [line for line in lines if line.startswith("model.coder.members ")]
    assert row.split(None, 1)[1].startswith("small weight=3.0; large weight=1.0 ")


def test_what_a_run_warns_of_its_dry_run_warns_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "same.py").write_text(PLUS_ONE.replace("return x + 1", "return x * 1"))
    assert main(["run", "same.py", "--dry-run", "--json"]) == 0
    told = capsys.readouterr()
    assert "warning: input x: passes every check\n" in told.err
    assert json.loads(told.out)["task"]["name"] == "same"


def test_what_is_wrong_with_a_run_is_wrong_with_its_dry_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "failing.py").write_text(PLUS_ONE.replace("return [torch.randn(8, 8)]", "raise ValueError('no inputs')"))
    (folder / "file").touch()
    (folder / "taken").mkdir()
    for words, said in (
        (["failing.py"], "no inputs"),
        (["plus_one.py", "--runs-dir", "file/runs"], "/file/runs'"),
        (["plus_one.py", "--runs-dir", ".", "--run-name", "taken"], "there is a run 'taken'"),
        (["plus_one.py", "--base-url", "http://h"], "no model is named"),
        (["plus_one.py", "--with", "coder"], "--with is for runs over NATS"),
        (["plus_one.py", "--threads", "4000"], "--threads 4000: this host gives"),
        (["nothing.py"], "cannot read problem file"),
        ([], "no task given"),
    ):
        assert main(["run", *words, "--dry-run"]) == 2
        assert said in capsys.readouterr().err
