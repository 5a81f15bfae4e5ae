"""Submissions become candidates, and candidates submissions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evaluators.tasks.gpumode.packing import candidate_of_text, write_submission
from evaluators.tasks.gpumode.reading import read_task
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile
from tests.evaluators.tasks.gpumode import problems


def test_a_submission_is_a_function_with_the_files_that_it_imports(tmp_path: Path) -> None:
    task = read_task(str(problems.masked(tmp_path)))
    candidate = candidate_of_text(problems.MASKED_RIGHT, task)
    assert (candidate.language, candidate.entry_point) == ("python", "custom_kernel")
    assert [file.path for file in candidate.files] == ["submission.py", "task.py"]
    assert candidate.files[0].text == problems.MASKED_RIGHT


@pytest.mark.parametrize(
    ("text", "eager"),
    [
        ("import torch\n@torch.compile\ndef custom_kernel(data): pass\n", "@(lambda function: function)\n"),
        ("import torch\ncustom_kernel = torch.compile(print, mode='x')\n", "custom_kernel = print\n"),
        (
            "import torch\nä = 1; custom_kernel = torch.compile(\n    print,\n    mode='x',\n)\n",
            "custom_kernel = print\n",
        ),
    ],
)
def test_compilation_by_torch_is_taken_out_and_said(tmp_path: Path, text: str, eager: str) -> None:
    candidate = candidate_of_text(text, read_task(str(problems.masked(tmp_path))))
    note, _, own = candidate.files[0].text.partition("\n")
    assert eager in own
    assert "torch.compile" not in own
    assert note == "# ksearch-async: 1 of torch.compile taken out: nothing is compiled where candidates run"


def test_two_passes_are_called_by_one_function(tmp_path: Path) -> None:
    task = read_task(str(problems.with_passes(tmp_path)))
    candidate = candidate_of_text(problems.PASSES_RIGHT, task)
    assert candidate.files[0].path == "main.py"
    assert "loss_forward(logits, targets), loss_backward(" in candidate.files[0].text
    assert write_submission(candidate, task).endswith(problems.PASSES_RIGHT)


def test_what_defines_nothing_that_could_be_called_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="custom_kernel"):
        candidate_of_text("x = 1\n", read_task(str(problems.masked(tmp_path))))
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match="loss_forward and loss_backward"):
        candidate_of_text("x = 1\n", read_task(str(problems.with_passes(tmp_path / "other"))))


def test_a_written_submission_says_whose_it_is_and_is_read_back(tmp_path: Path) -> None:
    task = read_task(str(problems.masked(tmp_path)))
    candidate = candidate_of_text(problems.MASKED_RIGHT, task)
    written = write_submission(candidate, task, ("2.5x, measured", "on another stream"))
    head = written.partition("\n\n")[0]
    assert f"# gpumode/masked; candidate {candidate.candidate_id}" in head
    assert "# 2.5x, measured" in head
    assert "stream" not in written
    assert candidate_of_text(written, task).files[0].text == written


def test_what_the_competition_would_refuse_is_not_written(tmp_path: Path) -> None:
    task = read_task(str(problems.masked(tmp_path)))
    candidate = candidate_of_text(problems.MASKED_RIGHT, task)
    more = (*candidate.files, SourceFile(path="more.py", text="x = 1\n"))
    word = (SourceFile(path="submission.py", text=problems.MASKED_RIGHT + "# one Stream\n"),)
    compiled = Candidate(language="cuda", entry_point="ksearch_run", files=candidate.files)
    for other, words in (
        (msgspec.structs.replace(candidate, files=more), "one file"),
        (msgspec.structs.replace(candidate, files=word), "line 7.*stream"),
        (compiled, "custom_kernel"),
    ):
        with pytest.raises(ConfigError, match=words):
            write_submission(other, task)
