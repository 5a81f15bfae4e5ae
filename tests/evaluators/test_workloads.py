"""Workloads that a problem file names: read from its text, chosen by name, hidden ones kept out of what is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluators.tasks import load_task
from evaluators.tasks.workloads import read_workloads, standalone_text, text_with
from messages.base import ConfigError
from messages.tasks import TaskSpec, Workload

MODEL = "class Model: ...\n"
FUNCTIONS = "def get_inputs(rows): ...\ndef get_init_inputs(wide=1): ...\n"
SHAPES = 'WORKLOADS = {"short": {"rows": 64}, "shapes/long": {"rows": 4096}, "shapes/odd": {"rows": 1021}}\n'
HIDDEN = 'HIDDEN_WORKLOADS = {\n    "held-out": {"rows": 517},\n}\n'


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(text)
    return str(path)


def names(task: TaskSpec) -> list[str]:
    return [workload.name for workload in task.workloads]


def test_a_file_without_workloads_is_the_task_that_it_was_before_there_were_any(tmp_path: Path) -> None:
    task = load_task(written(tmp_path, MODEL + FUNCTIONS))
    assert task == TaskSpec(name="mine", source="kernelbench", text=MODEL + FUNCTIONS)


def test_a_file_stands_for_all_its_workloads_in_their_order_hidden_ones_last(tmp_path: Path) -> None:
    task = load_task(written(tmp_path, MODEL + HIDDEN + SHAPES + FUNCTIONS))
    assert names(task) == ["short", "shapes/long", "shapes/odd", "held-out"]
    assert [workload.name for workload in task.hidden] == ["held-out"]
    assert task.shown[0] == Workload(name="short", dimensions={"rows": 64})


def test_the_text_that_travels_to_models_holds_no_hidden_workload(tmp_path: Path) -> None:
    task = load_task(written(tmp_path, MODEL + SHAPES + HIDDEN + FUNCTIONS))
    assert "517" not in task.text
    assert "held-out" not in task.text
    assert task.text == MODEL + SHAPES + FUNCTIONS


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        ("short", ["short"]),
        ("shapes", ["shapes/long", "shapes/odd"]),
        ("shapes/odd, short", ["short", "shapes/odd"]),
        ("shapes,held-out", ["shapes/long", "shapes/odd", "held-out"]),
    ],
)
def test_workloads_and_groups_are_chosen_behind_the_path(tmp_path: Path, selection: str, chosen: list[str]) -> None:
    path = written(tmp_path, MODEL + SHAPES + HIDDEN + FUNCTIONS)
    task = load_task(f"{path}:{selection}")
    assert names(task) == chosen
    assert [one.name for one in read_workloads(task.text, "it")] == [one.name for one in task.shown]
    assert task.name == f"mine:{selection}"


def test_rewriting_what_is_chosen_already_changes_nothing() -> None:
    text = MODEL + SHAPES + FUNCTIONS
    once = text_with(text, read_workloads(text, "it")[1:])
    assert once != text
    assert text_with(once, read_workloads(once, "it")) == once


def test_each_choice_of_workloads_is_another_task(tmp_path: Path) -> None:
    path = written(tmp_path, MODEL + SHAPES + HIDDEN + FUNCTIONS)
    chosen = [load_task(f"{path}:{selection}") for selection in ("short", "shapes", "shapes,held-out", "shapes/odd")]
    assert len({task.task_id for task in (load_task(path), *chosen)}) == 5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("WORKLOADS = dict(a={'rows': 1})\n", "line 2: WORKLOADS must be a literal"),
        ("WORKLOADS = {}\n", "an entry per workload"),
        ("WORKLOADS = {'a': {}}\n", "workload 'a' must be a dict"),
        ("WORKLOADS = {'a': {'rows': [1]}}\n", "workload 'a' must be a dict"),
        ("WORKLOADS = {'a`b': {'rows': 1}}\n", "'a`b' is no name"),
        ("WORKLOADS = {'a': {'rows': 1, 'depth': 2}}\n", "'depth', which neither get_inputs nor"),
        ("WORKLOADS = {'a': {'wide': 1}}\n", "get_inputs takes 'rows', which workload 'a' does not give"),
        ("WORKLOADS = {'a': {'rows': 1}}\nHIDDEN_WORKLOADS = {'a': {'rows': 2}}\n", "names workload 'a' twice"),
        ("HIDDEN_WORKLOADS = {'a': {'rows': 2}}\n", "something must be shown"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as raised:
        load_task(written(tmp_path, MODEL + text + FUNCTIONS))
    assert "\n" not in str(raised.value)


def test_an_unknown_workload_is_refused_with_those_there_are(tmp_path: Path) -> None:
    path = written(tmp_path, MODEL + SHAPES + HIDDEN + FUNCTIONS)
    with pytest.raises(ConfigError, match=r"no workloads 'shape'; did you mean 'shapes'\?"):
        load_task(f"{path}:shape")
    with pytest.raises(ConfigError, match="hidden workloads only"):
        load_task(f"{path}:held-out")


def test_a_text_that_stands_alone_makes_the_inputs_of_one_workload_without_arguments() -> None:
    text = "def get_inputs(rows, columns=3):\n    return (rows, columns)\ndef get_init_inputs():\n    return []\n"
    found: dict[str, Callable[[], object]] = {}
    exec(standalone_text(text, Workload(name="a", dimensions={"rows": 7})), found)  # noqa: S102 - our own text
    assert (found["get_inputs"](), found["get_init_inputs"]()) == ((7, 3), [])
