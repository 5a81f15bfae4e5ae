"""A process that compiles what a candidate wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.process.sandbox import landlock, root
from evaluators.process.sandbox.probe import probe_layers
from evaluators.process.sandbox.profiles import readable_by
from messages.events import Built
from messages.tasks import Candidate, SourceFile
from messages.verdicts import DidNotBuild
from tests.evaluators.process.sandbox.confined import try_all
from tests.evaluators.words import build_job

ALLOWED = {"fork", "executes", "leave_the_process_group", "forget_the_parent"}
ENTRY = 'extern "C" int ksearch_run(const void* const*, void* const*, const long* const*) { return 0; }\n'


@pytest.fixture(scope="module")
def behind_all(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    if probe_layers().missing_for_strict:
        pytest.skip(f"this host lacks {', '.join(probe_layers().missing_for_strict)}")
    return try_all(tmp_path_factory.mktemp("build"), profile="build")


def test_compilers_start_processes_and_threads_and_write_their_folder(behind_all: dict[str, str]) -> None:
    needed = {*ALLOWED, "write_to_the_own_folder", "read_what_is_named", "start_a_thread", "load_a_library"}
    assert {name: behind_all[name] for name in needed} == dict.fromkeys(needed, "done")


@pytest.mark.parametrize(
    "name",
    [
        *("write_outside", "read_the_credentials", "unlink_a_package", "write_to_a_package", "connect_by_tcp"),
        *("send_by_udp", "signal_the_judge", "trace_the_judge", "read_the_judges_environment"),
        *("open_the_judges_memory", "list_the_judges_descriptors", "make_a_namespace", "open_a_ring"),
    ],
)
def test_compilers_are_refused(name: str, behind_all: dict[str, str]) -> None:
    assert behind_all[name] != "done"


@pytest.mark.anyio
@pytest.mark.parametrize("line", ['#include "{path}"\n', 'asm(".incbin \\"{path}\\"");\n'])
async def test_a_source_includes_no_file_of_this_host(line: str, tmp_path: Path) -> None:
    if {landlock.NAME, root.NAME} <= set(probe_layers().missing):
        pytest.skip("this host has neither Landlock nor private roots")
    secret = tmp_path / "secret.h"
    secret.write_text("// secret\n")
    builder = LocalBuilder(tmp_path / "artifacts")
    right = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="main.cpp", text=ENTRY),))
    curious = Candidate(
        language="cpp",
        entry_point="ksearch_run",
        files=(SourceFile(path="main.cpp", text=line.replace("{path}", str(secret)) + ENTRY),),
    )
    target = probe_target("cpp")
    assert isinstance((await builder.build(build_job(right, target))).outcome, Built)
    assert isinstance((await builder.build(build_job(curious, target))).outcome, DidNotBuild)


def test_what_a_command_names_and_where_its_programs_lie_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("toolchain/bin", "toolchain/include", ".local/bin", "headers"):
        (tmp_path / folder).mkdir(parents=True)
    compiler, own = tmp_path / "toolchain/bin/cc", tmp_path / ".local/bin/cc"
    for program in (compiler, own):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    command = (str(compiler), f"-I{tmp_path}/headers", f"-ccbin={own}", "-o", "kernel.so", "main.cpp")
    found = set(readable_by(command))
    assert found == {
        *(str(compiler), str(own), str(tmp_path / "headers")),
        *(str(tmp_path / "toolchain"), str(tmp_path / ".local/bin")),
    }


@pytest.mark.anyio
async def test_what_was_built_belongs_to_who_built_it(tmp_path: Path) -> None:
    builder = LocalBuilder(tmp_path / "artifacts")
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="main.cpp", text=ENTRY),))
    built = (await builder.build(build_job(candidate, probe_target("cpp")))).outcome
    assert isinstance(built, Built)
    owners = {path.stat().st_uid for path in (tmp_path / "artifacts").rglob("*")}
    assert owners == {os.geteuid()}
