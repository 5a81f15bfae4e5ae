"""A launcher that was left beside kernels calls the driver: what else it is linked with is a library's work."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from evaluators.build.policy.gate import examine
from evaluators.languages.cpp.toolchain import find_compiler
from messages.tasks import Candidate, SourceFile, TaskRules
from messages.verdicts import LIBRARY_CALL_RULE

CANDIDATE = Candidate(
    language="triton", entry_point="ksearch_run", files=(SourceFile(path="kernel.py", text="import triton\n"),)
)
NAME = "__triton_launcher.cpython-312-x86_64-linux-gnu.so"


def launcher(folder: Path, *libraries: str, name: str = NAME) -> None:
    """Leave one that is linked with libraries of these names."""
    place = folder / "kernels" / "KEY"
    place.mkdir(parents=True)
    made = [str(folder / library) for library in libraries]
    for library, path in zip(libraries, made, strict=True):
        command = [find_compiler(), "-shared", "-fPIC", "-x", "c++", "-", f"-Wl,-soname,{library}", "-o", path]
        subprocess.run(command, input=b'extern "C" void f() {}', check=True)
    source = folder / "launcher.cpp"
    source.write_text('extern "C" void f(); extern "C" void launch() { f(); }')
    command = [find_compiler(), "-shared", "-fPIC", str(source), "-Wl,--no-as-needed", *made, "-o", str(place / name)]
    subprocess.run(command, check=True)


@pytest.mark.parametrize(
    ("libraries", "name", "said"),
    [
        (("libcuda.so.1",), NAME, None),
        (("libcuda.so.1", "libcublas.so.13"), NAME, "linked with libcublas.so.13"),
        (("libcuda.so.1",), "helper.so", "helper.so is no launcher"),
    ],
)
def test_what_it_is_linked_with_decides(
    tmp_path: Path, libraries: tuple[str, ...], name: str, said: str | None
) -> None:
    launcher(tmp_path, *libraries, name=name)
    rejected = examine(CANDIDATE, tmp_path / "kernel.py", TaskRules()).rejected
    if said is None:
        assert rejected is None
    else:
        assert rejected is not None
        assert rejected.rule == LIBRARY_CALL_RULE
        assert said in rejected.reason
    assert examine(CANDIDATE, tmp_path / "kernel.py", TaskRules(library_calls="allow")).rejected is None


def test_one_that_is_no_library_cannot_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "kernels" / "KEY").mkdir(parents=True)
    (tmp_path / "kernels" / "KEY" / NAME).write_text("no library")
    rejected = examine(CANDIDATE, tmp_path / "kernel.py", TaskRules()).rejected
    assert rejected is not None
    assert "cannot be looked into" in rejected.reason
