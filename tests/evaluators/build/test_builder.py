"""The local builder, with the real compiler."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder, load_meta
from evaluators.hardware.target import probe_target
from evaluators.languages import support_of
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, SourceFile, Target
from messages.verdicts import DidNotBuild
from tests.contracts.evaluators import BuilderContract
from tests.evaluators.judge.running import running
from tests.evaluators.words import RIGHT, TVM_FFI, build_job, cpp

pytestmark = pytest.mark.anyio


@pytest.fixture
def builder(tmp_path: Path) -> LocalBuilder:
    return LocalBuilder(tmp_path / "artifacts")


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("cpp")


@pytest.fixture
def good() -> Candidate:
    return cpp(RIGHT)


@pytest.fixture
def bad() -> Candidate:
    return cpp(RIGHT.replace("return 0;", "return nothing_of_that_name;"))


class TestLocalBuilder(BuilderContract):
    pass


async def refusal(builder: LocalBuilder, target: Target, candidate: Candidate) -> DidNotBuild:
    outcome = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(outcome, DidNotBuild)
    return outcome


async def test_the_store_holds_a_complete_folder_and_nothing_half_done(
    builder: LocalBuilder, target: Target, good: Candidate, tmp_path: Path
) -> None:
    outcome = (await builder.build(build_job(good, target))).outcome
    assert isinstance(outcome, Built)
    store = tmp_path / "artifacts"
    assert [path.name for path in store.iterdir()] == [outcome.artifact_id]
    assert (artifact_folder(store, outcome.artifact_id) / "kernel.so").exists()
    assert load_meta(store, outcome.artifact_id).candidate_id == good.candidate_id


async def test_another_builder_finds_what_one_built(
    builder: LocalBuilder, target: Target, good: Candidate, tmp_path: Path
) -> None:
    await builder.build(build_job(good, target))
    assert (await LocalBuilder(tmp_path / "artifacts").build(build_job(good, target))).cached


async def test_builders_that_race_for_one_artifact_both_have_it(
    target: Target, good: Candidate, tmp_path: Path
) -> None:
    outcomes: list[object] = []

    async def build() -> None:
        outcomes.append((await LocalBuilder(tmp_path / "artifacts").build(build_job(good, target))).outcome)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(build)
    assert len(set(outcomes)) == 1
    assert len(list((tmp_path / "artifacts").iterdir())) == 1


async def test_the_reason_is_the_first_error_and_the_log_shows_its_line(
    builder: LocalBuilder, target: Target, bad: Candidate, tmp_path: Path
) -> None:
    outcome = await refusal(builder, target, bad)
    assert "main.cpp:" in outcome.reason
    assert "nothing_of_that_name" in outcome.reason
    assert "return nothing_of_that_name;" in outcome.log
    assert str(tmp_path) not in outcome.log


async def test_a_function_that_is_nowhere_defined_is_a_build_error(builder: LocalBuilder, target: Target) -> None:
    outcome = await refusal(
        builder, target, cpp("int elsewhere();\n" + RIGHT.replace("return 0", "return elsewhere()"))
    )
    assert "undefined reference to elsewhere()" in outcome.reason


async def test_a_missing_entry_point_is_a_build_error_that_shows_how_to_define_it(
    builder: LocalBuilder, target: Target
) -> None:
    outcome = await refusal(builder, target, cpp(RIGHT.replace('extern "C" ', "")))
    assert 'define `extern "C" int ksearch_run' in outcome.reason


async def test_a_tvm_ffi_kernel_builds(builder: LocalBuilder, target: Target) -> None:
    assert isinstance((await builder.build(build_job(cpp(TVM_FFI), target))).outcome, Built)


async def test_several_files_build_together(builder: LocalBuilder, target: Target) -> None:
    candidate = cpp('#include "twice.h"\n' + RIGHT.replace("return 0", "return twice(0)"), twice_h="int twice(int);")
    files = (*candidate.files, SourceFile(path="twice.cpp", text="int twice(int x) { return 2 * x; }"))
    report = await builder.build(build_job(replace(candidate, files=files), target))
    assert isinstance(report.outcome, Built)


@pytest.mark.parametrize("path", ["../main.cpp", "/main.cpp", "-o.cpp", ".hidden.cpp", "a/../b.cpp", ""])
async def test_a_file_name_that_leaves_the_folder_is_refused(builder: LocalBuilder, target: Target, path: str) -> None:
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path=path, text=RIGHT),))
    assert "file name" in (await refusal(builder, target, candidate)).reason


async def test_a_compiler_that_does_not_end_is_stopped_and_the_result_is_not_kept(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = support_of("cpp")
    plan = support.plan_build(cpp(RIGHT), target)
    endless = replace(plan, command=("sleep", "600"), timeout_s=1.0)
    monkeypatch.setattr(type(support), "plan_build", lambda *_: endless)
    builder = LocalBuilder(tmp_path / "artifacts")
    assert (await refusal(builder, target, cpp(RIGHT))).reason == "compiler stopped after 1 s"
    assert list((tmp_path / "artifacts").iterdir()) == []


@contextmanager
def on_one_core() -> Iterator[None]:
    """Have this process, and what it starts, run on one core."""
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, everywhere)


async def test_a_compiler_that_gets_no_core_is_the_hosts_failure_and_not_the_candidates(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = support_of("cpp")
    computes = replace(
        support.plan_build(cpp(RIGHT), target), command=("sh", "-c", "while true; do :; done"), timeout_s=0.5
    )
    monkeypatch.setattr(type(support), "plan_build", lambda *_: computes)
    # Compilers give way to this one, which has the same single core.
    busy = running("print(flush=True)\nwhile True: pass")
    with on_one_core(), busy, pytest.raises(EvaluatorError, match="was starved") as raised:
        await LocalBuilder(tmp_path / "artifacts").build(build_job(cpp(RIGHT), target))
    assert not raised.value.permanent
    assert list((tmp_path / "artifacts").iterdir()) == []


async def test_a_compiler_that_is_killed_is_not_the_candidates_fault(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    support = support_of("cpp")
    killed = replace(support.plan_build(cpp(RIGHT), target), command=("sh", "-c", "kill -9 $$"))
    monkeypatch.setattr(type(support), "plan_build", lambda *_: killed)
    with pytest.raises(EvaluatorError, match="signal 9"):
        await LocalBuilder(tmp_path / "artifacts").build(build_job(cpp(RIGHT), target))


async def test_a_target_of_another_compiler_is_the_builders_error(
    builder: LocalBuilder, target: Target, good: Candidate
) -> None:
    with pytest.raises(EvaluatorError, match="same compiler") as raised:
        await builder.build(build_job(good, replace(target, toolchain="g++ 1.0")))
    assert raised.value.permanent


async def test_a_store_that_cannot_be_written_is_the_builders_error(target: Target, tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file where the store should be")
    with pytest.raises(EvaluatorError, match="artifact"):
        await LocalBuilder(tmp_path / "artifacts").build(build_job(cpp(RIGHT), target))


async def test_compilers_find_nothing_of_the_users_environment(
    builder: LocalBuilder, target: Target, good: Candidate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or ""
    spy = tmp_path / "spy"
    spy.write_text(f'#!/bin/sh\ntest -e build.log && env > seen\nexec {compiler} "$@"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("KSEARCH_CXX", str(spy))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    built = (await builder.build(build_job(good, probe_target("cpp")))).outcome
    assert isinstance(built, Built)
    seen = (artifact_folder(tmp_path / "artifacts", built.artifact_id) / "seen").read_text()
    assert "PATH=" in seen
    assert os.environ["OPENAI_API_KEY"] not in seen
