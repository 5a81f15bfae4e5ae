"""`new-task`: a task of one's own that works as it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ksearch_async.cli import main


def test_a_new_task_can_be_checked_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-task", "mine", "--in", "tasks"]) == 0
    written = capsys.readouterr()
    assert written.out == "tasks/mine\n"
    assert "ksearch check-task tasks/mine" in written.err
    assert main(["check-task", "tasks/mine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["fitness"], told["task"]) == ("fit", "mine")
    assert told["itself"]["verdict"] in {"measured", "unstable", "outpaced"}


def test_an_existing_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["new-task", "mine", "--in", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_candidates_in_a_language_that_the_task_leaves_out_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["new-task", "mine"])
    document = tmp_path / "mine" / "task.toml"
    document.write_text(document.read_text().replace("# languages =", "languages ="))
    (tmp_path / "kernel.cpp").write_text("int x;\n")
    capsys.readouterr()
    assert main(["eval", "mine", "kernel.cpp"]) == 2
    told = capsys.readouterr().err
    assert "error: task 'mine' is for candidates in triton, cuda, not in cpp" in told
    assert main(["run", "mine", "--max-rounds", "1"]) == 2
    assert "hint: use --language triton" in capsys.readouterr().err
