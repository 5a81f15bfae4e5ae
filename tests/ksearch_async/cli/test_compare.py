"""`ksearch compare` at the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ksearch_async.cli import compare, main
from tests.ksearch_async.stories import on_disk, sequel, story
from tests.ksearch_async.views.report.recorded import gpu_records, hostile, priced, seeded


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KSEARCH_RUNS_DIR", str(tmp_path))
    on_disk(tmp_path, story(), "first")
    on_disk(tmp_path, seeded(sequel(), 1), "second")
    on_disk(tmp_path, gpu_records("softmax_rows_1_h200"), "softmax-1")
    on_disk(tmp_path, gpu_records("softmax_rows_2_h200"), "softmax-2")
    return tmp_path


@pytest.mark.usefixtures("runs")
def test_runs_stand_beside_each_other_in_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "terminal_width", lambda: 80)
    assert main(["compare", "softmax-1", "softmax-2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "task       softmax_rows:gpu"
    assert any(line.split() == ["rounds", "to", "2x", "8", "4"] for line in lines)
    assert any(line.startswith("softmax-2  B") for line in lines)


def test_many_groups_are_told_one_table_after_the_other(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "terminal_width", lambda: 44)
    assert main(["compare", "softmax-1", "softmax-2"]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 44
    assert told.count("best speedup") == 2


@pytest.mark.usefixtures("runs")
def test_json_has_each_run_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "first", "second", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (group,) = told["groups"]
    assert (told["task"], group["best"]["median"], group["best"]["high"]) == ("relu", 2.25, 2.5)
    first, second = group["runs"]
    assert (first["run"], second["seed"], second["best"]["value"]) == ("first", 1, 2.5)
    assert (first["reached"]["2"], second["reached"]["2"]["rounds"]) == (None, 3)
    assert first["fates"] == {"wrong": 1, "measured": 1}


def test_markdown_is_a_table_that_names_cannot_break(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(runs, hostile(), "hostile-1")
    on_disk(runs, priced(seeded(hostile(), 1), 0.1), "hostile-2")
    assert main(["compare", "hostile-1", "hostile-2", "--markdown"]) == 0
    told = capsys.readouterr().out
    tables = [line for line in told.splitlines() if line.startswith("|")]
    assert "|---|---:|" in tables[1]
    assert "<script" not in told.replace("\\<script", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["first"], "two runs or more are needed"),
        (["first", "first"], "run 'first' is named twice"),
        (["first", "softmax-1"], "are of different tasks: name (relu and softmax_rows:gpu)"),
        (["first", "nothing"], "no run 'nothing'"),
        (["first", "second", "--json", "--markdown"], "cannot be given together"),
    ],
)
@pytest.mark.usefixtures("runs")
def test_what_cannot_be_compared_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == 2
    assert said in capsys.readouterr().err
