"""Tasks of one's own: `task.toml` and a plain function."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks import load_task
from evaluators.tasks.own.document import write_task
from messages.base import ConfigError
from messages.tasks import Tolerance
from tests.contracts.task_sources import MARK, TaskSourceContract

TASK = """
name = "scaled"
reference = "reference.py:scaled"
languages = ["triton", "cpp"]
tolerance = {profile = "kernelbench", rtol = 1e-3}

[[inputs]]
name = "x"
shape = ["rows", "2 * columns"]

[[inputs]]
name = "order"
shape = ["rows"]
dtype = "int64"
distribution = "permutation"

[[inputs]]
name = "scale"
value = 0.5

[workloads]
small = {rows = 8, columns = 4}
"shapes/odd" = {rows = 7, columns = 3}

[hidden_workloads]
held = {rows = 5, columns = 2}

[rules]
library_calls = "allow"
threads = 1
"""
REFERENCE = (
    "from parts.gather import gathered\n\n\ndef scaled(x, order, scale=1.0):\n    return gathered(x, order) * scale\n"
)
GATHER = "def gathered(x, order):\n    return x[order]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "scaled"
    (folder / "parts").mkdir(parents=True)
    mark = f"open({str(tmp_path / MARK)!r}, 'w')\n"
    (folder / "task.toml").write_text(TASK)
    (folder / "reference.py").write_text(mark + REFERENCE)
    (folder / "parts" / "gather.py").write_text(mark + GATHER)
    (folder / "kernel.py").write_text("an own attempt, which is no part of the task")
    return folder


@pytest.fixture
def selector(folder: Path) -> str:
    return str(folder)


@pytest.fixture
def broken(folder: Path) -> tuple[str, tuple[str, ...]]:
    (folder / "task.toml").write_text(TASK.replace('"2 * columns"', '"2 * colums"'))
    return str(folder), ("task.toml", "input 'x'", "'colums' is no dimension", "rows, columns")


class TestOwnTasks(TaskSourceContract):
    source = "own"


def test_all_of_a_document_is_taken_over(folder: Path) -> None:
    task = load_task(str(folder))
    assert (task.name, task.calling, task.entry_point, task.languages) == (
        "scaled",
        "function",
        "scaled",
        ("triton", "cpp"),
    )
    assert task.tolerance == Tolerance(profile="kernelbench", rtol=1e-3)
    assert (task.rules.library_calls, task.rules.threads) == ("allow", 1)
    assert [(one.name, one.hidden) for one in task.workloads] == [
        ("small", False),
        ("shapes/odd", False),
        ("held", True),
    ]
    assert [file.path for file in task.files] == ["parts/gather.py", "reference.py"]
    assert "held" not in task.text


def test_some_workloads_can_be_named_behind_the_folder(folder: Path) -> None:
    task = load_task(f"{folder}:shapes")
    assert [workload.name for workload in task.workloads] == ["shapes/odd"]
    assert task.name == "scaled:shapes"
    with pytest.raises(ConfigError, match=r"no workloads 'smal'; did you mean 'small'"):
        load_task(f"own:{folder}:smal")


def test_a_file_that_nothing_imports_changes_no_id(folder: Path) -> None:
    before = load_task(str(folder)).task_id
    (folder / "kernel.py").write_text("another attempt")
    assert load_task(str(folder)).task_id == before
    (folder / "parts" / "gather.py").write_text(GATHER + "\n")
    assert load_task(str(folder)).task_id != before


MISTAKES = [
    ("name =", "nam =", ("unknown key 'nam'", "there are: name, reference")),
    ('name = "scaled"\n', "", ("the key 'name' is missing",)),
    ("= 0.5", "= [1]", ("inputs", "value")),
    ('"reference.py:scaled"', '"reference.py"', ("reference", "'reference.py' is not of the form", "FILE.py:FUNCTION")),
    ('"reference.py:scaled"', '"other.py:scaled"', ("reference", "cannot read", "other.py")),
    ('"reference.py:scaled"', '"reference.py:scald"', ("defines no function 'scald' (there are: scaled)",)),
    ('["triton", "cpp"]', '["triton", "rust"]', ("languages", "'rust' is none of 'cpp', 'triton'")),
    ('profile = "kernelbench"', 'profile = "kernelbank"', ("tolerance", "unknown tolerance profile 'kernelbank'")),
    ("rtol = 1e-3", "rtol = -1.0", ("tolerance.rtol", "-1.0 is no bound")),
    ('name = "order"', 'name = "ordr"', ("scaled(x, order, scale)", "is given (x, ordr, scale)")),
    ('dtype = "int64"', 'dtype = "int65"', ("input 'order'", "unknown dtype 'int65'; there are: float32")),
    ('distribution = "permutation"\n', "", ("input 'order'", "an input of dtype int64 needs a distribution")),
    ('"permutation"', '"permuted"', ("unknown distribution 'permuted'; there are: normal",)),
    ('"permutation"', '"normal"', ("normal cannot be drawn in dtype int64",)),
    ('"permutation"', '"integers(3)"', ("integers takes 2 numbers in parentheses, not 1",)),
    ('"2 * columns"', '"columns // 4"', ("input 'x', workload 'shapes/odd'", "'columns // 4' is 0", "at least 1")),
    ('"2 * columns"', '"__import__(0)"', ("input 'x', shape", "__import__")),
    ('value = 0.5', 'value = 0.5\nshape = ["rows"]', ("input 'scale'", "either a shape", "or a value")),
    ("small = {rows = 8, columns = 4}", "small = {rows = 8}", ("'shapes/odd'", "'columns' is not in 'small'")),
    ("columns = 4}", "columns = 4, depth = 1}", ("workload 'shapes/odd'", "'depth' is missing here")),
    ("held = {", "small = {", ("hidden_workloads", "'small' is the name of a workload that is shown")),
    ('"allow"\n', '"alow"\n', ("rules.library_calls", "'alow' is none of 'allow', 'deny'")),
    ("threads = 1", 'allow = ["matmull"]', ("rules.allow", "'matmull' is nothing that can be allowed")),
    ("threads = 1", "threads = -1", ("rules.threads", "-1 is no number of threads")),
    ("threads = 1", "thread = 1", ("unknown key 'thread' in rules", "library_calls, allow, measure, threads")),
    ("[[inputs]]", "[[inputs]", ("is no TOML", "line 7")),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "words"), MISTAKES)
def test_each_mistake_is_one_line_with_file_and_key(
    folder: Path, right: str, wrong: str, words: tuple[str, ...]
) -> None:
    text = TASK.replace(right, wrong, 1)
    assert text != TASK
    (folder / "task.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_task(str(folder))
    said = str(caught.value)
    assert "\n" not in said
    assert str(folder / "task.toml") in said or "reference.py" in said
    for word in words:
        assert word in said


def test_a_mistake_in_the_reference_names_file_and_line(folder: Path) -> None:
    (folder / "reference.py").write_text("def scaled(x, order, scale)\n    return x\n")
    with pytest.raises(ConfigError, match=r"reference.py', line 1: expected ':'"):
        load_task(str(folder))


def test_a_function_may_make_the_inputs(folder: Path) -> None:
    head, _, _ = TASK.partition("[[inputs]]")
    tail = TASK[TASK.index("[workloads]") :]
    (folder / "task.toml").write_text(head + 'inputs = "inputs.py:make"\n' + tail)
    (folder / "inputs.py").write_text("def make(rows, columns):\n    return []\n")
    task = load_task(str(folder))
    assert "from inputs import make" in task.text
    assert "def get_inputs(rows, columns):\n    return make(rows, columns)" in task.text
    assert [file.path for file in task.files] == ["inputs.py", "parts/gather.py", "reference.py"]


def test_a_new_task_is_a_task(tmp_path: Path) -> None:
    task = load_task(str(write_task(tmp_path, "mine")))
    assert (task.name, task.entry_point) == ("mine", "mine")
    with pytest.raises(ConfigError, match="is there already"):
        write_task(tmp_path, "mine")
    with pytest.raises(ConfigError, match="'my-task' is no name for a task"):
        write_task(tmp_path, "my-task")


def test_numbers_that_never_change_are_defaults_which_readers_of_the_text_can_use(folder: Path) -> None:
    assert "def forward(self, x, order, scale=0.5):" in load_task(str(folder)).text
    document = folder / "task.toml"
    document.write_text(TASK.replace("value = 0.5", 'value = "rows"'))
    task = load_task(str(folder))
    assert "def forward(self, x, order, scale):" in task.text
    assert "        rows,\n    ]" in task.text


def test_a_reference_of_one_file_stands_in_the_problem_file(folder: Path) -> None:
    (folder / "reference.py").write_text(
        '"""Its docstring."""\n\nfrom __future__ import annotations\n\nHALF = 0.5\n\n\n'
        "def scaled(x: Tensor, order, scale=1.0):\n    return x[order] * scale * HALF\n"
    )
    task = load_task(str(folder))
    assert task.files == ()
    assert "HALF = 0.5\n\n\ndef scaled(x: Tensor" in task.text
    assert task.text.count("from __future__") == 1
    compile(task.text, "problem.py", "exec")
    (folder / "reference.py").write_text("class Model: ...\ndef scaled(x, order, scale=1.0):\n    return x\n")
    assert [file.path for file in load_task(str(folder)).files] == ["reference.py"]
