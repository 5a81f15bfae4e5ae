"""Names of runs, their folders, and how they are found again."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ksearch_async.runs.folder import RunFolder, create_run, find_run, list_runs, new_run_id, run_id_of
from ksearch_async.settings.run_config import ModelSettings, RunConfig, load_config, save_config
from messages.base import ConfigError
from messages.subjects import checked_id

STARTED = datetime(2026, 11, 20, 14, 23, 1, tzinfo=UTC)


def made(runs_dir: Path, name: str, *, written_at: int = 0) -> RunFolder:
    folder = create_run(runs_dir, name)
    folder.journal.write_bytes(b"")
    os.utime(folder.journal, (written_at, written_at))
    return folder


def test_a_run_is_named_after_its_task_and_its_start() -> None:
    assert new_run_id("rmsnorm_silu", STARTED).startswith("rmsnorm-silu-20261120-142301-")
    assert new_run_id("../level1/19_ReLU.py", STARTED).startswith("19-relu-20261120-142301-")


@pytest.mark.parametrize("task", ["ÄÖ", "", "x" * 300, "-", "a.b.c", "..", "名前.py", "_" * 9 + "z"])
def test_whatever_the_task_is_called_the_run_id_can_be_part_of_a_subject(task: str) -> None:
    assert checked_id(new_run_id(task, STARTED))


@pytest.mark.parametrize(("name", "run_id"), [("My-Run", "my-run"), ("gpt-5.2_wm opt300", "gpt-5-2-wm-opt300")])
def test_a_name_becomes_an_id(name: str, run_id: str) -> None:
    assert run_id_of(name) == run_id


@pytest.mark.parametrize("name", ["", "///", "名前", "x" * 65])
def test_a_name_that_no_run_can_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no name for a run"):
        run_id_of(name)


def test_a_name_that_is_taken_is_refused_and_the_run_that_has_it_stays(tmp_path: Path) -> None:
    taken = made(tmp_path, "mine")
    with pytest.raises(ConfigError, match="there is a run 'mine'") as caught:
        create_run(tmp_path, "mine")
    assert "ksearch resume mine" in caught.value.__notes__[0]
    assert taken.journal.exists()


def test_two_runs_of_one_second_have_different_names() -> None:
    assert len({new_run_id("relu", STARTED) for _ in range(20)}) > 15


def test_a_run_is_found_by_id_by_path_and_as_the_latest(tmp_path: Path) -> None:
    older = made(tmp_path, "relu-1", written_at=100)
    newer = made(tmp_path, "relu-2", written_at=200)
    assert find_run("relu-1", tmp_path) == older
    assert find_run(str(newer.path), tmp_path / "elsewhere") == newer
    assert find_run("latest", tmp_path) == newer
    assert list_runs(tmp_path) == [newer, older]


def test_a_name_that_is_nearly_right_gets_a_suggestion(tmp_path: Path) -> None:
    made(tmp_path, "relu-20261120-142301-k3f9")
    with pytest.raises(ConfigError, match="no run") as caught:
        find_run("relu-20261120-142301-k3f8", tmp_path)
    assert caught.value.__notes__ == ["did you mean 'relu-20261120-142301-k3f9'?"]


def test_there_is_no_latest_run_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no runs"):
        find_run("latest", tmp_path / "none")


def test_a_place_where_no_folder_can_be_made_is_the_users_to_change(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to"):
        create_run(tmp_path / "file" / "runs", "relu-1")


def test_a_models_name_is_part_of_no_path(tmp_path: Path) -> None:
    """26 of docs/design/0006: a slash in it broke the saving of results."""
    config = RunConfig(task="relu", model=ModelSettings(name="org/model:8b", base_url="http://127.0.0.1:1"))
    folder = create_run(tmp_path, new_run_id("relu", STARTED))
    save_config(config, folder.config)
    assert load_config(folder.config).model.name == "org/model:8b"
    assert [path.name for path in folder.path.iterdir()] == ["config.json"]
