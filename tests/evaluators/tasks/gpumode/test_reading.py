"""Problem folders of the competition become tasks; nothing of them is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaluators.tasks import load_task
from evaluators.tasks.gpumode.reading import read_task
from messages.base import ConfigError
from tests.contracts.task_sources import MARK, TaskSourceContract
from tests.evaluators.tasks.gpumode import problems


class TestGpuMode(TaskSourceContract):
    """The contract of task sources."""

    source = "gpumode"

    @pytest.fixture
    def selector(self, tmp_path: Path) -> str:
        folder = problems.masked(tmp_path)
        reference = folder / "reference.py"
        reference.write_text(f"open({str(tmp_path / MARK)!r}, 'w')\n" + reference.read_text())
        return str(folder)

    @pytest.fixture(params=["yaml", "kind", "python", "argument", "language"])
    def broken(self, request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, tuple[str, ...]]:
        folder = problems.masked(tmp_path)
        document, reference = folder / "task.yml", folder / "reference.py"
        match request.param:
            case "yaml":
                document.write_text(problems.MASKED_YML + "tests: [}")
                return str(folder), ("task.yml", "line")
            case "kind":
                reference.write_text("x = 1\n")
                return str(folder), ("reference.py", "ref_kernel", "reference_forward")
            case "python":
                reference.write_text("def broken(:\n")
                return str(folder), ("reference.py", "line 1")
            case "argument":
                document.write_text(problems.MASKED_YML.replace('"width": 33', '"height": 33'))
                return str(folder), ("task.yml", "test/1", "height")
            case _:
                document.write_text(problems.MASKED_YML.replace('lang: "py"', 'lang: "cu"'))
                return str(folder), ("task.yml", "'cu'")


def test_benchmarks_are_timed_and_tests_are_held_out(tmp_path: Path) -> None:
    task = read_task(str(problems.masked(tmp_path)))
    assert [one.name for one in task.shown] == ["benchmark/0", "benchmark/1"]
    assert [one.name for one in task.hidden] == ["test/0", "test/1"]
    assert (task.calling, task.entry_point, task.name) == ("function", "custom_kernel", "gpumode/masked")


def test_cases_are_chosen_behind_a_colon_and_then_shown(tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    task = load_task(f"{folder}:test,benchmark/1")
    assert [one.name for one in task.shown] == ["benchmark/1", "test/0", "test/1"]
    assert not task.hidden
    assert load_task(f"gpumode:{folder / 'task.yml'}:test/0").shown[0].dimensions["rows"] == 3


def test_a_boolean_of_a_case_stays_one_and_is_a_text_where_upstream_is_meant(tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    assert [one.dimensions["nomask"] for one in read_task(str(folder)).shown] == [True, False]
    upstream = read_task(f"{folder}:upstream-benchmark")
    assert [one.dimensions["nomask"] for one in upstream.shown] == ["True", "False"]


def test_a_problem_without_false_cases_has_no_upstream_reading_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="upstream-benchmark"):
        read_task(f"{problems.with_room(tmp_path)}:upstream-benchmark")


@pytest.mark.parametrize(
    ("checker", "profile"),
    [
        ("check_implementation = make_match_reference(ref_kernel, rtol=2e-2, atol=1e-3)", "gpumode:0.02,0.001"),
        ("check_implementation = make_match_reference(ref_kernel)", "gpumode:1e-05,1e-08"),
        (
            "def check_implementation(data, output):\n"
            "    return verbose_allclose(output, ref_kernel(data), rtol=1e-3, atol=1e-4)",
            "gpumode:0.001,0.0001",
        ),
        (
            "def check_implementation(data, output):\n    n = data[0].numel()\n    scale = n ** 0.5\n"
            "    rtol = 1e-5 * scale\n"
            "    return match_reference(data, output, ref_kernel, rtol=rtol, atol=1e-5 * scale)",
            "gpumode:1e-05,1e-05,sqrt",
        ),
        (
            "def check_implementation(data, output):\n    return verbose_allequal(output, ref_kernel(data))",
            "gpumode:0,0",
        ),
        ("def check_implementation(data, output):\n    return (output @ output.T).norm() < limit(data), ''", "strict"),
        (
            "def check_implementation(data, output):\n"
            "    return match_reference(data, output, ref_kernel, rtol=limit(data))",
            "strict",
        ),
    ],
)
def test_a_tolerance_is_read_where_it_stands_in_numbers(tmp_path: Path, checker: str, profile: str) -> None:
    folder = problems.masked(tmp_path)
    before = problems.MASKED.partition("check_implementation")[0]
    (folder / "reference.py").write_text(f"{before}\n{checker}\n")
    task = read_task(str(folder))
    assert task.tolerance.profile == profile
    assert ("def check_outputs(" in task.text) == ("The judge runs it" in task.notes) == (profile == "strict")


def test_room_for_an_output_is_told_from_a_tensor_that_is_filled_later(tmp_path: Path) -> None:
    task = read_task(str(problems.with_room(tmp_path)))
    assert "with_rooms(reference.generate_input(**given), [2])" in task.text
    assert "room for the outputs" in task.notes


def test_of_a_forward_and_a_backward_pass_the_harness_says_names_and_batch(tmp_path: Path) -> None:
    task = read_task(str(problems.with_passes(tmp_path)))
    assert "PASSES = ('loss_forward', 'loss_backward')" in task.text
    assert "'batch': 24" in task.text
    assert task.tolerance.profile == "gpumode:0.01,0.001"


def test_the_notes_tell_description_contract_and_provenance(tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n")
    (tmp_path / "LICENSE").write_text("\n# Some Licence\n")
    notes = read_task(str(folder)).notes
    for words in (
        "where the mask says so",
        "custom_kernel(data)",
        "`set/masked` at commit 0123456789ab",
        "Some Licence",
    ):
        assert words in notes


def test_a_problem_for_several_gpus_is_refused(tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    (folder / "task.yml").write_text(problems.MASKED_YML + "multi_gpu: true\n")
    with pytest.raises(ConfigError, match="several GPUs"):
        read_task(str(folder))


def test_what_is_for_a_cpu_is_small_and_has_each_boolean(tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    document = problems.MASKED_YML.replace(
        "benchmarks:", "  - {rows: 4, width: 999, seed: 1, nomask: True}\nbenchmarks:"
    )
    (folder / "task.yml").write_text(document)
    task = read_task(f"{folder}:cpu")
    assert [one.name for one in task.shown] == ["test/0", "test/1"]
    assert {one.dimensions["nomask"] for one in task.shown} == {True, False}
    assert task.name == "gpumode/masked:cpu"


def test_one_large_matrix_is_more_for_a_cpu_than_many_small_ones(tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    document = re.sub(
        r"tests:.*benchmarks:",
        "tests:\n"
        "  - {rows: 1, width: 2048, seed: 1, nomask: True}\n"
        "  - {rows: 40, width: 64, seed: 2, nomask: True}\n"
        "  - {rows: 20, width: 32, seed: 3, nomask: True}\n"
        "benchmarks:",
        problems.MASKED_YML,
        flags=re.DOTALL,
    )
    (folder / "task.yml").write_text(document)
    assert [one.name for one in read_task(f"{folder}:cpu").shown] == ["test/1", "test/2"]
