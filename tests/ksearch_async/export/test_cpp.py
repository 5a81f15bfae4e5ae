"""Exported modules in C++: what is built, once and whole, and what is not loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.hardware.target import probe_target
from ksearch_async.export import Winner
from messages.tasks import Candidate, SourceFile
from tests.contracts.exports import TASK, TENSORS, VERDICT, ExportContract, lay
from tests.evaluators.words import RIGHT, TVM_FFI

AWKWARD = RIGHT + "// '''\"\"\" \\\n//\ttab, \x0c form feed, \xe9\r\n"
"""The right program with all that a literal could stumble over."""


def won(*files: SourceFile) -> Winner:
    return Winner(
        task=TASK,
        tensors=TENSORS,
        candidate=Candidate(language="cpp", entry_point="ksearch_run", files=files),
        target=probe_target("cpp"),
        verdict=VERDICT,
        device="CPU",
        purpose="confirm",
        measured_at="2026-11-20T12:00:00+00:00",
        run_id="r1",
        round=3,
        found_by=('fuse "all"', "vectorise"),
    )


class TestExportedCpp(ExportContract):
    spoil = ("* weight[c] * scale", "* weight[c] * scale * 1.01f")

    @pytest.fixture(scope="class")
    @classmethod
    def winner(cls) -> Winner:
        return won(SourceFile(path="main.cpp", text=RIGHT))

    def test_what_was_built_is_found_again_without_a_compiler(self, folder: Path) -> None:
        assert self.python(folder, "exported.py", "--self-test").returncode == 0
        (built,) = (folder / "cache").glob("*.so")
        before = built.stat().st_mtime_ns
        assert self.python(folder, "exported.py", "--self-test").returncode == 0
        assert built.stat().st_mtime_ns == before
        assert not list((folder / "cache").glob(".building-*"))

    @pytest.mark.long
    def test_processes_that_need_it_at_once_build_it_once(self, fresh: Path) -> None:
        log = fresh / "compilations"
        compiler = fresh / "compiler"
        compiler.write_text(f'#!/bin/sh\necho x >> {log}\nexec c++ "$@"\n')
        compiler.chmod(0o755)
        environment = {**os.environ, "CXX": str(compiler), "KSEARCH_EXPORT_CACHE": str(fresh / "cache")}
        command = [sys.executable, "exported.py", "--self-test"]
        together = [subprocess.Popen(command, cwd=fresh, env=environment, stdout=subprocess.PIPE) for _ in range(4)]
        for process in together:
            process.communicate(timeout=100)
        assert [process.returncode for process in together] == [0] * 4
        assert log.read_text() == "x\n"

    def test_a_damaged_library_is_built_again_instead_of_loaded(self, fresh: Path) -> None:
        assert self.python(fresh, "exported.py", "--self-test").returncode == 0
        (built,) = (fresh / "cache").glob("*.so")
        whole = built.read_bytes()
        built.unlink()  # a process may still have it mapped
        built.write_bytes(whole[: len(whole) // 2])
        done = self.python(fresh, "exported.py", "--self-test")
        assert done.returncode == 0, done.stdout + done.stderr
        assert built.stat().st_size == len(whole)

    def test_a_cache_that_others_may_write_to_is_not_used(self, fresh: Path) -> None:
        (fresh / "cache").mkdir(mode=0o777)
        (fresh / "cache").chmod(0o777)
        done = self.python(fresh, "exported.py", "--self-test")
        assert done.returncode == 1
        assert "others may write to" in done.stderr

    def test_a_missing_compiler_is_said(self, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        done = self.python(fresh, "exported.py", "--self-test")
        assert done.returncode == 1
        assert done.stderr.startswith("error: kernel 'small' has to be built, and none of c++, g++, clang++ is there")

    def test_a_compiler_that_is_named_and_not_there_is_not_replaced_by_another(
        self, fresh: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CXX", "nonexist")
        done = self.python(fresh, "exported.py", "--self-test")
        assert done.returncode == 1
        assert "none of nonexist is there: CXX is set to it" in done.stderr


class TestExportedTvmFfi(ExportContract):
    spoil = ("* w[c] / (1", "* w[c] / (1.01f")

    @pytest.fixture(scope="class")
    @classmethod
    def winner(cls) -> Winner:
        return won(SourceFile(path="main.cpp", text=TVM_FFI))


def test_text_that_is_awkward_to_quote_is_built_to_the_byte(tmp_path: Path) -> None:
    header = SourceFile(path="inc/more.h", text="// nothing\n")
    winner = won(SourceFile(path="main.cpp", text='#include "inc/more.h"\n' + AWKWARD), header)
    lay(tmp_path, winner)
    contract = ExportContract()
    script = "import sys; sys.path.insert(0, '.'); import exported, json; print(json.dumps(exported.SOURCES))"
    assert json.loads(contract.python(tmp_path, "-c", script).stdout) == {
        file.path: file.text for file in winner.candidate.files
    }
    assert contract.python(tmp_path, "exported.py", "--self-test").returncode == 0
