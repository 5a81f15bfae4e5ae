"""What is built inside a module is found by its sources and flags, by nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.utils

from evaluators.languages.python.inline import compiles_inside, plan_inline
from evaluators.runners.inline import REPLACED, NotBuiltError, arguments_of, key_of, offer_built
from messages.base import EvaluatorError
from messages.tasks import Candidate, SourceFile, Target


def key(folder: Path, *args: object, function: str = "load_inline", **options: object) -> str:
    return key_of(function, arguments_of(function, args, options), str(folder))


def test_names_and_places_are_no_part_of_a_key_and_flags_are(tmp_path: Path) -> None:
    plain = key(tmp_path, "one", "int f();")
    assert key(tmp_path, name="other", cpp_sources=["int f();"], verbose=True, build_directory="/elsewhere") == plain
    assert key(tmp_path, "one", "int f();", None) == plain
    assert key(tmp_path, "one", "int g();") != plain
    assert key(tmp_path, "one", "int f();", extra_cflags=["-O3"]) != plain
    assert key(tmp_path, "one", "", "int f();") != plain


def test_sources_in_files_count_by_their_contents(tmp_path: Path) -> None:
    source = tmp_path / "kernel.cpp"
    source.write_text("int f();")
    before = key(tmp_path, "one", [str(source)], function="load")
    source.write_text("int g();")
    assert key(tmp_path, "one", str(source), function="load") != before


def test_more_arguments_by_position_than_can_be_told_apart_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotBuiltError, match="by name"):
        key(tmp_path, "one", "int f();", "", ["f"])


@pytest.fixture
def restored() -> Iterator[None]:
    kept, attribute = sys.modules.get(REPLACED), vars(torch.utils).get("cpp_extension")
    yield
    sys.modules.pop(REPLACED, None)
    vars(torch.utils).pop("cpp_extension", None)
    if kept is not None:
        sys.modules[REPLACED] = kept
    if attribute is not None:
        vars(torch.utils)["cpp_extension"] = attribute


@pytest.mark.usefixtures("restored")
def test_what_was_not_built_is_told_where_it_is_asked_for(tmp_path: Path) -> None:
    offer_built(str(tmp_path))
    with pytest.raises(NotBuiltError, match="nothing was built of these sources and flags"):
        vars(sys.modules[REPLACED])["load_inline"]("mine", "int f();")


def module(text: str) -> Candidate:
    return Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="main.py", text=text),))


def test_only_modules_that_name_what_compiles_are_executed_by_their_build() -> None:
    assert compiles_inside(module("from torch.utils.cpp_extension import load_inline"))
    assert not compiles_inside(module("import torch"))


def test_without_ninja_it_is_the_hosts_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    target = Target(arch="x86_64", march="", toolchain="torch", device="CPU")
    with pytest.raises(EvaluatorError, match="ninja is not here") as caught:
        plan_inline(module("import torch.utils.cpp_extension"), target)
    assert caught.value.permanent
