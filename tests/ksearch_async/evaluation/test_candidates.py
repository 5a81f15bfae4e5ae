"""Candidates read from files and from the folders that the recorder makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.recorder.folder import Evidence, Manifest
from ksearch_async.evaluation.candidates import read_kernel, read_program
from messages.base import ConfigError, Language
from messages.codec import to_json
from messages.tasks import Candidate, SourceFile, TaskSpec

CANDIDATE = Candidate(
    language="cpp",
    entry_point="ksearch_run",
    files=(SourceFile(path="kernel.cpp", text='#include "a/tiles.h"\n'), SourceFile(path="a/tiles.h", text="// é\n")),
)
MANIFEST = Manifest(
    candidate_id=CANDIDATE.candidate_id,
    language="cpp",
    entry_point="ksearch_run",
    files=("kernel.cpp", "a/tiles.h"),
    job_id="j",
    branch_id="b",
    model="offline",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in CANDIDATE.files:
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(file.text, encoding="utf-8")
    return tmp_path


def test_a_candidates_folder_gives_the_candidate_that_was_written(folder: Path) -> None:
    (folder / "candidate.json").write_bytes(to_json(MANIFEST))
    assert read_kernel(folder, "cpp").candidate_id == CANDIDATE.candidate_id


def test_the_best_folder_gives_the_candidate_that_was_measured(folder: Path) -> None:
    evidence = Evidence(
        seq=1,
        at="2026-11-20T14:23:01+00:00",
        run_id="r",
        candidate_id=CANDIDATE.candidate_id,
        round=1,
        node_id="n1",
        found_by=("fuse",),
        credit=1.5,
        speedup_vs_reference=1.6,
        latency_us=10.0,
        candidate=MANIFEST,
    )
    (folder / "evidence.json").write_bytes(to_json(evidence))
    assert read_kernel(folder, "cpp").candidate_id == CANDIDATE.candidate_id


def test_a_single_file_is_its_own_candidate_with_the_languages_entry_point(folder: Path) -> None:
    candidate = read_kernel(folder / "kernel.cpp", "cpp")
    assert (candidate.entry_point, [file.path for file in candidate.files]) == ("ksearch_run", ["kernel.cpp"])


def test_a_folder_that_holds_no_candidate_is_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read a candidate") as caught:
        read_kernel(tmp_path, "cpp")
    assert "best/" in caught.value.__notes__[0]


def test_what_a_folder_lacks_is_said_and_of_a_run_where_its_best_lies(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither evidence\.json nor candidate\.json is in it"):
        read_program(tmp_path)
    (tmp_path / "journal.jsonl").touch()
    with pytest.raises(ConfigError, match=r"neither evidence\.json nor candidate\.json is in it") as caught:
        read_kernel(tmp_path, "cpp")
    assert caught.value.__notes__[0].startswith(f"this is a run: give its best/ folder, '{tmp_path}/best'")


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "candidate.json").write_text("{")
    with pytest.raises(ConfigError, match="damaged"):
        read_kernel(tmp_path, "cpp")


def test_a_source_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernel.cpp").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_kernel(tmp_path / "kernel.cpp", "cpp")


@pytest.mark.parametrize(
    ("name", "text", "language", "entry_point"),
    [
        ("k.cpp", "int x;", "cpp", "ksearch_run"),
        ("k.cc", "int x;", "cpp", "ksearch_run"),
        ("k.cu", "int x;", "cuda", "ksearch_run"),
        ("k.py", "def ksearch_run(x): ...", "triton", "ksearch_run"),
        ("k.py", "import torch\nclass ModelNew(torch.nn.Module): ...", "python", "ModelNew"),
    ],
)
def test_a_files_language_is_told_by_its_suffix_and_a_module_by_its_class(
    name: str, text: str, language: str, entry_point: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    candidate = read_kernel(tmp_path / name, None)
    assert (candidate.language, candidate.entry_point) == (language, entry_point)


@pytest.mark.parametrize(
    ("name", "language", "endings"),
    [("k.c", None, ".cpp, .cc, .cxx"), ("k", None, ".cpp, .cc, .cxx"), ("k.cpp", "cuda", ".cu")],
)
def test_a_file_that_its_compiler_would_not_take_is_refused_before_anything_is_built(
    name: str, language: Language | None, endings: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("int x;")
    with pytest.raises(ConfigError, match=f"{name}' is taken for (cpp|cuda); its files must end in {endings}\n"):
        read_kernel(tmp_path / name, language)


def test_a_program_has_no_entry_point(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("class ModelNew: ...")
    assert read_program(tmp_path / "p.py").entry_point == "" == read_program("a = 1\nb = 2").entry_point


def test_a_solutions_json_is_for_tasks_of_its_format_only(tmp_path: Path) -> None:
    (tmp_path / "solution.json").write_text("{}")
    for task in (None, TaskSpec(name="mine", source="kernelbench", text="")):
        with pytest.raises(ConfigError, match=r"solution\.json'.* is no task of it"):
            read_kernel(tmp_path / "solution.json", None, task)
