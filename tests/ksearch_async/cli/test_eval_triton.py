"""`ksearch eval` of Triton programs: correct or not, never timed; and compiled for a GPU that is not there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ksearch_async.cli import main
from tests.evaluators.languages.triton.words import RIGHT, inside
from tests.evaluators.words import SMALL_TASK


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(SMALL_TASK.text)
    (tmp_path / "kernel.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(inside("y = y + nowhere"))
    (tmp_path / "kernel.cpp").write_text("int x;")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("workplace")
def test_a_right_program_is_correct_and_not_timed_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "small.py", "kernel.py", "--language", "triton"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "verdict    measured: correct, not timed: Triton's interpreter tells nothing about speed"
    assert re.match(r"checks     \d+ calls; Triton's interpreter on ", said[1])


@pytest.mark.usefixtures("workplace")
def test_json_says_that_it_was_not_timed_and_a_python_file_is_taken_for_triton(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "small.py", "kernel.py", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["timed"], told["checked_calls"] >= 3) == ("measured", False, True)
    assert "speedup_vs_reference" not in told


@pytest.mark.usefixtures("workplace")
def test_compiling_ahead_tells_each_kernels_needs_and_what_it_does_not_tell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["eval", "small.py", "kernel.py", "--compile-for", "sm_90"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "compiles   for sm_90; that says nothing about numbers or speed"
    assert second.startswith("kernel     scale_rows: ")
    assert "registers, 0 bytes spilled" in second


@pytest.mark.usefixtures("workplace")
def test_what_does_not_compile_ends_with_1_and_the_compilers_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "small.py", "wrong.py", "--compile-for", "sm_90", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["compiles"] is False
    assert told["reason"].startswith("scale_rows: ")
    assert "y = y + nowhere" in told["kernels"][0]["error"]


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["kernel.py", "--compile-for", "sm_1"], "cannot compile for 'sm_1'; there are: sm_80"),
        (["kernel.cpp", "--compile-for", "sm_90"], "--compile-for is for Triton programs"),
        (["kernel.py", "--language", "fortran"], "fortran"),
    ],
)
def test_what_cannot_be_compiled_is_bad_input(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "small.py", *words]) == 2
    assert complaint in capsys.readouterr().err
