"""Problem files of TritonBench become tasks; nothing of them is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks import load_task
from evaluators.tasks.tritonbench.reading import problem_names, read_problem
from messages.base import ConfigError
from tests.contracts.task_sources import MARK, TaskSourceContract
from tests.evaluators.tasks.tritonbench.problems import LINE, SHIFT, SHIFT_TEST, checkout


class TestTritonBench(TaskSourceContract):
    """The contract of task sources."""

    source = "tritonbench"

    @pytest.fixture
    def selector(self, tmp_path: Path) -> str:
        root = checkout(tmp_path)
        problem = root / "data" / "TritonBench_G_v1" / "shift.py"
        marked = f"open({str(tmp_path / MARK)!r}, 'w')\n"
        problem.write_text(f"{marked}{SHIFT}\n{LINE}\n{marked}{SHIFT_TEST}")
        return f"{root}#G/shift"

    @pytest.fixture(params=["line", "gold", "test", "called", "name", "suite", "workload", "results"])
    def broken(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, tuple[str, ...]]:
        root = checkout(tmp_path)
        problem = root / "data" / "TritonBench_G_v1" / "shift.py"
        match request.param:
            case "line":
                problem.write_text(SHIFT)
                return f"{root}#G/shift", ("shift.py", "line of #")
            case "gold":
                problem.write_text(f"def broken(:\n{LINE}\n{SHIFT_TEST}")
                return f"{root}#G/shift", ("shift.py", "line 1")
            case "test":
                problem.write_text(f"x = 1\n{LINE}\n\ndef broken(:\n")
                return f"{root}#G/shift", ("shift.py", "line 4")
            case "called":
                problem.write_text(f"{SHIFT}\n{LINE}\nprint(1)\n")
                return f"{root}#G/shift", ("uses nothing of the gold",)
            case "name":
                return f"{root}#G/shif", ("'shif'", "shift")
            case "suite":
                return f"{root}#X/shift", ("PATH#G/NAME",)
            case "results":
                (root / "performance_metrics" / "perf_G" / "golden_results" / "shift.json").write_text('[{"ms": "no"}]')
                return f"{root}#G/shift", ("shift.json",)
            case _:
                return f"{root}#G/shift:perf/7", ("perf/7", "perf/0")


def test_the_test_s_calls_are_the_workload_unless_sizes_are_named(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    assert [one.name for one in load_task(f"tritonbench:{root}#G/shift").workloads] == ["test"]
    assert [one.name for one in load_task(f"tritonbench:{root}#G/shift:cpu").workloads] == ["cpu"]
    timed = load_task(f"tritonbench:{root}#G/shift:test,perf")
    assert [one.name for one in timed.workloads] == ["test", "perf/0", "perf/1", "perf/2"]
    assert timed.name == "tritonbench/G/shift:test,perf"


def test_a_task_names_what_candidates_define_and_where_it_comes_from(tmp_path: Path) -> None:
    task = load_task(f"tritonbench:{checkout(tmp_path)}#G/shift")
    assert (task.calling, task.entry_point, task.languages) == ("function", "ksearch_run", ("python",))
    for told in ("Adds a number.", "`shift`, `shift_`", "def make_calls", "someone/kernels", "2 of 5"):
        assert told in task.notes
    assert [file.path for file in task.files] == ["gold.py"]
    assert "result_gold" not in task.files[0].text


def test_functions_are_those_that_the_test_calls_and_no_kernels(tmp_path: Path) -> None:
    problem = tmp_path / "norm.py"
    gold = (
        "import torch, triton\n\n@triton.jit\ndef kernel(x): ...\n\nclass Norm(torch.autograd.Function): ...\n"
        "norm = Norm.apply\ndef twice(x): ...\ndef unused(x): ...\nclass Other(torch.autograd.Function): ...\n"
    )
    test = "def test_a():\n    kernel[(1,)](twice(norm(1)))\n    Other.apply(2)\n"
    problem.write_text(f"{gold}\n{LINE}\n{test}")
    parts = read_problem(problem)
    assert parts.functions == ("norm", "twice", "Other.apply")
    assert parts.test.endswith("test_a()\n")


def test_problems_of_a_checkout_are_listed(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    assert (problem_names(root, "G"), problem_names(root, "T")) == (("shift",), ("noisy",))
    with pytest.raises(ConfigError, match="no checkout of thunlp/TritonBench"):
        problem_names(tmp_path, "G")


def test_a_folder_alone_is_asked_for_the_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="G has 1, T has 1"):
        load_task(f"tritonbench:{checkout(tmp_path)}")


def test_a_problem_file_of_a_checkout_needs_no_prefix(tmp_path: Path) -> None:
    problem = checkout(tmp_path) / "data" / "TritonBench_T_v1" / "noisy.py"
    assert load_task(str(problem)).name == "tritonbench/T/noisy"
