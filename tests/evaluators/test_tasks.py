"""Tasks: found by name or path, parsed, never run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from evaluators.tasks import bundled_tasks, load_task
from evaluators.tasks.registry import SOURCES
from messages.base import ConfigError
from messages.tasks import TaskSource

PROBLEM = "class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n"


def test_a_bundled_problem_is_found_by_its_name() -> None:
    assert "rmsnorm_silu" in bundled_tasks()
    task = load_task("rmsnorm_silu")
    assert task.name == "rmsnorm_silu"
    assert "class Model" in task.text


@pytest.mark.parametrize("name", bundled_tasks())
def test_a_bundled_problem_has_a_gpu_size(name: str) -> None:
    small, large = load_task(name), load_task(f"{name}:gpu")
    assert load_task(f"{name}:cpu") == small
    assert large.name == f"{name}:gpu"
    assert [workload.name for workload in (*small.workloads, *large.workloads)] == ["cpu", "gpu"]
    assert small.text.split("WORKLOADS", 1)[1].count('"cpu"') == 1
    assert '"cpu"' not in large.text


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'rmsnorm_silu' has no workloads 'tpu'; did .*\(there are: cpu, gpu, shapes"
    ):
        load_task("rmsnorm_silu:tpu")


def test_a_problem_file_is_found_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(PROBLEM)
    task = load_task(str(path))
    assert (task.name, task.text) == ("mine", PROBLEM)


def test_an_unknown_name_is_refused_with_a_suggestion_and_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown problem 'rmsnorm-silu'; did you mean 'rmsnorm_silu'\?.*bundled"):
        load_task("rmsnorm-silu")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def f(:\n", "line 1"),
        ("class Model: ...\n", "does not define get_inputs, get_init_inputs"),
        ("x = '\0'\n", "problem file"),
    ],
)
def test_a_file_that_is_no_problem_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as raised:
        load_task(str(path))
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_task(str(tmp_path / "none.py"))
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_task(str(tmp_path / "bytes.py"))


@pytest.mark.parametrize("name", ["empty", "empty/", "./empty", "empty:short", "."])
def test_a_folder_that_is_no_task_is_said_to_lack_a_task_toml(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"from folder '(empty|\.)': there is no task\.toml in it") as raised:
        load_task(name)
    assert "ksearch new-task" in raised.value.__notes__[0]


def test_definitions_may_be_imported_or_conditional(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from x import Model\nif True:\n    get_inputs = get_init_inputs = list\n")
    assert load_task(str(path)).name == "mine"


def test_neither_loading_a_task_nor_the_evaluator_imports_torch() -> None:
    code = (
        "import sys, evaluators.tasks, evaluators.local, evaluators.build.builder, evaluators.simulated;"
        "evaluators.tasks.load_task('rmsnorm_silu'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_source_of_kernel_tasks_is_registered() -> None:
    assert set(SOURCES) == set(get_args(TaskSource)) - {"program"}
