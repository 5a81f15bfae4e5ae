"""What a coder's model is told of plain Python programs, and what is taken from its answer."""

from __future__ import annotations

from actors.coder.parse import parse_answer
from actors.coder.prompts import request_for, system_rules
from messages.commands import WriteCandidate
from messages.tasks import Candidate, SourceFile
from messages.verdicts import Scored
from tests.actors.coder.jobs import TASK, job

PROGRAM = Candidate(language="python", entry_point="", files=(SourceFile(path="program.py", text="VALUE = 1\n"),))


def asked(**changes: object) -> WriteCandidate:
    task = {"task": type(TASK)(**{name: getattr(TASK, name) for name in TASK.__struct_fields__} | {"entry_point": ""})}
    return job(language="python", **task, **changes)


def test_the_rules_speak_of_scores_and_not_of_kernels() -> None:
    rules = system_rules("python", is_program=True)
    assert "score" in rules
    for word in ("tensor", "latency", "reference", "entry point"):
        assert word not in rules


def test_without_a_base_the_initial_program_is_where_to_start() -> None:
    prompt = request_for(asked()).prompt
    assert "start from the initial program" in prompt
    assert "entry point" not in prompt


def test_a_score_that_is_no_better_is_told_with_the_evaluators_notes() -> None:
    verdict = Scored(score=0.25, notes=("hint: the inner loop is slow",))
    base = {"base": PROGRAM, "base_outcome": "scored: 0.5"}
    prompt = request_for(asked(mode="improve", **base, current=PROGRAM, current_verdict=verdict)).prompt
    assert "no better than the base (scored: 0.5): scored: 0.25." in prompt
    assert "hint: the inner loop is slow" in prompt
    assert "score higher" in prompt


def test_the_largest_python_block_is_the_program_whatever_it_defines() -> None:
    answer = "<CODE>\n```python\nx = 1\n```\nand so\n```python\n# EVOLVE\nVALUE = 2\n```\n</CODE>"
    candidate, complaint = parse_answer(answer, language="python", entry_point="")
    assert complaint == ""
    assert candidate is not None
    assert candidate.files == (SourceFile(path="program.py", text="# EVOLVE\nVALUE = 2"),)


def test_blocks_of_other_languages_are_no_program() -> None:
    candidate, complaint = parse_answer("```cpp\nint x;\n```", language="python", entry_point="")
    assert candidate is None
    assert "'python'" in complaint
