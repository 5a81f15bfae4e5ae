"""A program task: two files read, checked and told to a model; nothing of them runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.programs.task import describe_program, initial_candidate, load_program, probe_interpreter
from messages.base import ConfigError
from tests.evaluators.programs.words import EVALUATOR, PROGRAM, task_in


def test_a_model_is_told_both_files_words_and_the_contract(tmp_path: Path) -> None:
    told = describe_program(task_in(tmp_path))
    assert (told.language, told.entry_point, told.tensors) == ("python", "", ())
    for words in ("Scores what solve() returns.", "Larger numbers win.", PROGRAM.rstrip(), "EVOLVE-BLOCK-START`"):
        assert words in told.prompt


def test_without_markers_a_model_is_told_to_keep_names(tmp_path: Path) -> None:
    task = replace(task_in(tmp_path), text="def solve():\n    return 1\n")
    assert "Keep the names" in describe_program(task).prompt
    assert "EVOLVE" not in describe_program(task).prompt


def test_the_initial_program_is_a_candidate(tmp_path: Path) -> None:
    candidate = initial_candidate(task_in(tmp_path))
    assert (candidate.language, candidate.files[0].text) == ("python", PROGRAM)


def test_a_task_is_another_once_anything_that_changes_a_score_is(tmp_path: Path) -> None:
    task, elsewhere = task_in(tmp_path), tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert task_in(elsewhere).task_id == task.task_id
    others = [task_in(tmp_path, timeout_s=3), task_in(tmp_path, memory_gib=1), task_in(tmp_path, EVALUATOR + "\n")]
    assert len({task.task_id, *(other.task_id for other in others)}) == 4


@pytest.mark.parametrize(
    ("program", "evaluator", "words"),
    [
        ("def solve(:", EVALUATOR, "program 'P', line 1"),
        (PROGRAM, "def evaluate(:", "evaluator file 'E', line 1"),
        (PROGRAM, "def score(path): ...", "does not define evaluate(program_path)"),
        (None, EVALUATOR, "cannot read program 'P'"),
        (PROGRAM, None, "cannot read evaluator file 'E'"),
    ],
)
def test_files_that_cannot_be_used_are_refused_by_name(
    tmp_path: Path, program: str | None, evaluator: str | None, words: str
) -> None:
    paths = {"P": tmp_path / "p.py", "E": tmp_path / "e.py"}
    for path, text in zip(paths.values(), (program, evaluator), strict=True):
        if text is not None:
            path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_program(str(paths["P"]), str(paths["E"]))
    for name, path in paths.items():
        words = words.replace(f"'{name}'", repr(str(path)))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "evaluator", ["from scoring import evaluate", "evaluate = make()", "async def x(): ...\ndef evaluate(p): ..."]
)
def test_evaluate_may_be_defined_in_any_way(tmp_path: Path, evaluator: str) -> None:
    assert task_in(tmp_path, evaluator).scorer is not None


def test_the_target_is_the_interpreter() -> None:
    target = probe_interpreter()
    assert target.march == ""
    assert "3." in target.toolchain
