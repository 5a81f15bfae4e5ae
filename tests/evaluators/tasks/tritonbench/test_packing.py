"""Candidate files of TritonBench come in, and go out as its scripts take them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluators.tasks import candidate_of_text, load_task
from evaluators.tasks.tritonbench.packing import candidate_of, export, read_candidate, read_predictions
from messages.base import ConfigError
from tests.evaluators.tasks.tritonbench.problems import LINE, SHIFT, SHIFT_TEST, checkout


def test_a_file_with_its_test_becomes_a_candidate_without_it(tmp_path: Path) -> None:
    path = tmp_path / "shift.py"
    path.write_text(f"{SHIFT}\n{LINE}\n{SHIFT_TEST}")
    candidate = read_candidate(path, ("shift", "shift_"))
    text = candidate.files[0].text
    assert (candidate.language, candidate.entry_point) == ("python", "ksearch_run")
    assert text.startswith("import torch")
    assert "test_shift" not in text
    assert text.endswith('    return make_calls(calls, {"shift": shift, "shift_": shift_})\n')
    compile(text, "candidate.py", "exec")


def test_lines_that_are_there_already_are_not_put_twice() -> None:
    once = candidate_of(SHIFT, ("shift",))
    assert candidate_of(once.files[0].text, ("shift",)) == once


def test_what_goes_out_is_the_candidate_s_own_text_and_the_gold_s_test() -> None:
    written = export(candidate_of(SHIFT, ("shift",)), SHIFT_TEST)
    own, line, test = written.partition(LINE)
    assert own.strip() == SHIFT.strip()
    assert line
    assert test.strip() == SHIFT_TEST.strip()
    assert candidate_of(written, ("shift",)) == candidate_of(SHIFT, ("shift",))


def test_answers_are_read_with_what_models_put_around_code(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    lines = [
        {"label": "gold<|im_end|>", "predict": "Sure:\n```python\nx = 1\n```\nDone<|EOT|>", "prompt": "p"},
        {"label": "gold", "predict": "y = 2<|im_end|>"},
        {"label": "gold", "predict": "First:\n```python\nz = 1\n```\nBetter:\n```python\nz = 3\n```\n"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [(one.label, one.predict.strip()) for one in read_predictions(path)] == [
        ("gold", "x = 1"),
        ("gold", "y = 2"),
        ("gold", "z = 3"),
    ]


def test_a_line_that_is_no_answer_is_named(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"label": "a", "predict": "b"}\n{"label": "a"}\n')
    with pytest.raises(ConfigError, match="line 2"):
        read_predictions(path)


def test_a_file_that_is_named_for_a_task_gets_the_lines_that_make_the_calls(tmp_path: Path) -> None:
    task = load_task(f"tritonbench:{checkout(tmp_path)}#G/shift")
    assert candidate_of_text(f"{SHIFT}\n{LINE}\n{SHIFT_TEST}", task, "mine.py") == candidate_of(
        SHIFT, ("shift", "shift_")
    )
