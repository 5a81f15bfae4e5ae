"""Finding and reading problems of a checkout; nothing of them is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks import load_task
from evaluators.tasks.kernelbench.reading import VARIABLES, checkout, list_problems, read_task
from messages.base import ConfigError

PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()


batch_size, dim = 4096, 65536


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for level, name in ((1, "2_Second"), (1, "10_Tenth"), (2, "1_First"), (4, "1_Hub")):
        path = tmp_path / "KernelBench" / f"level{level}" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROBLEM)
    (tmp_path / "KernelBench" / "level1" / "notes.py").touch()
    return tmp_path


def test_problems_are_listed_by_number(root: Path) -> None:
    problems = list_problems(root, 1)
    assert [(problem.problem_id, problem.name) for problem in problems] == [(2, "1/2_Second"), (10, "1/10_Tenth")]
    assert list_problems(root / "KernelBench", 1)[0].path == root / "KernelBench" / "level1" / "2_Second.py"


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_problem_of_the_checkout_that_the_environment_names_is_loaded_as_published(root: Path, variable: str) -> None:
    task = read_task("1/10", {variable: str(root)})
    assert (task.name, task.source, task.text) == ("kernelbench/1/10_Tenth", "kernelbench", PROBLEM)


def test_the_size_for_a_cpu_is_another_task(root: Path) -> None:
    whole, small = read_task(f"{root}/1/10"), read_task(f"{root}/level1/10:cpu")
    assert small.name == "kernelbench/1/10_Tenth:cpu"
    assert small.text == PROBLEM.replace("4096, 65536", "128, 512")
    assert small.task_id != whole.task_id


def test_a_selector_works_wherever_a_task_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSEARCH_KERNELBENCH", str(root))
    assert load_task("kernelbench:2/1").text == PROBLEM
    path = root / "KernelBench" / "level2" / "1_First.py"
    assert load_task(f"kernelbench:{path}:cpu").name == "kernelbench/1_First:cpu"


def test_level_4_is_refused_with_the_reason(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"level 4 cannot be evaluated: .*hub"):
        read_task(f"{root}/4/1")


@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ("1/3", "holds no problem 3 .*it has 2 to 10"),
        ("3/1", "holds no level3/"),
        ("23", "expected LEVEL/ID"),
        ("", "expected LEVEL/ID"),
        ("missing.py", "cannot read problem file 'missing.py'"),
        ("1/2:gpu", "expected LEVEL/ID"),
    ],
)
def test_what_is_no_problem_is_one_clear_message(root: Path, selector: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_task(selector, {"KSEARCH_KERNELBENCH": str(root)})


def test_a_checkout_that_nobody_names_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="no KernelBench checkout is named") as raised:
        checkout({})
    assert "KSEARCH_KERNELBENCH" in raised.value.__notes__[0]
