"""What fails around a candidate is the evaluator's error, never a verdict, and the next candidate is judged as ever."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.hardware.target import probe_target
from evaluators.judge import entry
from evaluators.local import LocalEvaluator
from messages.base import ConfigError, EvaluatorError
from messages.events import Built
from messages.tasks import Target, TaskRules
from messages.verdicts import Measured, Unstable
from tests.evaluators.judging import Judging
from tests.evaluators.local.conftest import LIMITS
from tests.evaluators.words import RIGHT, SLEEPY_TASK, SMALL_TASK, after, before, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio

JUDGE, RUNNER = "evaluators.judge", "runners.native"
SLOW = before("usleep(100000);")
"""Takes long enough to be timed that something can happen meanwhile."""
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
async def evaluator(store: Path) -> AsyncIterator[LocalEvaluator]:
    """One checking judge and one timing judge, so that a test knows whom it meets."""
    evaluator = LocalEvaluator(store, slots=1, limits=LIMITS)
    yield evaluator
    await evaluator.aclose()


Find = Callable[[], psutil.Process | None]


def own_processes() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def runs(process: psutil.Process, script: str) -> bool:
    try:
        return any(script in part for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def judges() -> list[psutil.Process]:
    """Return those that serve, with what is forked from them."""
    return [process for process in own_processes() if is_called(process, entry.NAME.decode())]


def is_called(process: psutil.Process, name: str) -> bool:
    try:
        return bool(process.name() == name)
    except psutil.NoSuchProcess:
        return False


def judge_at_work() -> psutil.Process | None:
    """Return the judge that has a runner."""
    for process in own_processes():
        if runs(process, RUNNER):
            try:
                return process.parent()
            except psutil.NoSuchProcess:
                return None
    return None


def timing_judge_at_work() -> psutil.Process | None:
    """Return the judge that has a runner and, forked from it, loops that keep cores awake and a baseline worker."""
    judge = judge_at_work()
    return judge if judge is not None and len(forked_from(judge)) > 1 else None


def baseline_worker() -> psutil.Process | None:
    """Return the child of the timing judge that is not of the lowest priority."""
    judge = timing_judge_at_work()
    for child in forked_from(judge) if judge is not None else ():
        if not is_idle(child):
            return child
    return None


def is_idle(process: psutil.Process) -> bool:
    """Say whether a process is of the lowest priority, or gone."""
    try:
        return os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    except ProcessLookupError:
        return True


def forked_from(judge: psutil.Process) -> list[psutil.Process]:
    try:
        return [child for child in judge.children() if runs(child, JUDGE)]
    except psutil.NoSuchProcess:
        return []


def compiler() -> psutil.Process | None:
    """Return the pass of the compiler that does the work: the largest process, which the kernel would choose."""
    return next((process for process in own_processes() if runs(process, "cc1plus")), None)


async def killed(find: Find) -> None:
    """Kill a process as soon as it is there, as the kernel does that has no memory left."""
    with anyio.fail_after(PATIENCE_S):
        while (found := find()) is None:  # noqa: ASYNC110 - processes tell nobody that they are there
            await anyio.sleep(0.05)  # each look reads all of /proc, and what is looked for lasts a second
    os.kill(found.pid, signal.SIGKILL)


async def error_of(work: Awaitable[object], find: Find) -> EvaluatorError:
    """Return what comes of work during which a process is killed."""
    caught: list[EvaluatorError] = []

    async def expect() -> None:
        with pytest.raises(EvaluatorError) as raised:
            await work
        caught.append(raised.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(expect)
        await killed(find)
    return caught[0]


@pytest.mark.long
@pytest.mark.parametrize("gives_way", [True, False])
async def test_a_judge_killed_while_it_opens_its_task(
    builder: LocalBuilder, target: Target, store: Path, *, gives_way: bool
) -> None:
    """That which checks gives way to all others; that which times loads the task beside it, and is awaited later."""
    candidate = cpp(RIGHT)
    built = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(built, Built)
    job = evaluate_job(candidate, built.artifact_id, target)
    evaluator = LocalEvaluator(store, slots=1, limits=LIMITS)
    try:
        known = {process.pid for process in own_processes()}

        def fresh() -> psutil.Process | None:
            found = {process.pid: process for process in judges()}
            new = [process for process in found.values() if process.pid not in known and process.ppid() not in found]
            return next((process for process in new if is_idle(process) is gives_way), None)

        error = await error_of(evaluator.evaluate(job), fresh)
        assert "the judge died of signal 9" in str(error)
        assert not error.permanent
        assert isinstance((await evaluator.evaluate(job)).verdict, Measured | Unstable)
    finally:
        await evaluator.aclose()


@pytest.mark.long
async def test_judges_are_forked_from_one_process_and_from_another_when_that_is_gone(store: Path) -> None:
    known = set(own_processes())
    evaluator = LocalEvaluator(store, slots=1, limits=LIMITS)
    try:
        await evaluator.describe_task(SMALL_TASK, "cpp")
        started = set(own_processes()) - known
        (warm,) = started & set(psutil.Process().children())
        assert runs(warm, "evaluators.process.warm")
        assert all(warm in process.parents() for process in judges() if process in started)
        warm.kill()
        psutil.wait_procs([warm], timeout=PATIENCE_S)
        assert (await evaluator.describe_task(replace(SMALL_TASK, text=f"{SMALL_TASK.text}# 2\n"), "cpp")).tensors
        started |= set(own_processes()) - known
    finally:
        await evaluator.aclose()
    _, alive = psutil.wait_procs(list(started), timeout=PATIENCE_S)
    assert alive == []


async def test_a_judge_killed_while_it_times(judge: Judging) -> None:
    error = await error_of(judge(SLOW, SLEEPY_TASK), timing_judge_at_work)
    assert "the judge died of signal 9" in str(error)
    assert not error.permanent
    assert isinstance(await judge(before("usleep(2000);"), SLEEPY_TASK), Measured | Unstable)


async def test_a_baseline_worker_killed_while_it_is_timed(judge: Judging) -> None:
    error = await error_of(judge(SLOW, SLEEPY_TASK), baseline_worker)
    assert "baseline worker" in str(error)
    assert not error.permanent
    assert isinstance(await judge(before("usleep(2000);"), SLEEPY_TASK), Measured | Unstable)


async def test_a_compiler_killed_at_work_is_not_the_candidates_fault_and_is_not_kept(
    builder: LocalBuilder, target: Target
) -> None:
    slow = cpp("#include <regex>\n#include <random>\n#include <map>\n#include <future>\n" + RIGHT)
    error = await error_of(builder.build(build_job(slow, target)), compiler)
    assert "stopped from outside" in str(error)
    assert not error.permanent
    assert isinstance((await builder.build(build_job(slow, target))).outcome, Built)


async def test_words_of_a_candidate_do_not_pass_for_a_killed_compiler(builder: LocalBuilder, target: Target) -> None:
    words = "c++: fatal error: Killed signal terminated program cc1plus"
    for text in (f"#error {words}\n", f'#pragma GCC error "No space left on device"\n#include "{words}"\n'):
        assert not isinstance((await builder.build(build_job(cpp(text + RIGHT), target))).outcome, Built)


@pytest.mark.long
async def test_a_damaged_artifact_is_removed_and_built_again(
    builder: LocalBuilder, evaluator: LocalEvaluator, target: Target, store: Path
) -> None:
    candidate = cpp(after("// to be cut short"))
    built = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(built, Built)
    product = artifact_folder(store, built.artifact_id) / "kernel.so"
    os.truncate(product, product.stat().st_size // 2)
    job = evaluate_job(candidate, built.artifact_id, target)
    with pytest.raises(EvaluatorError, match="build it again") as raised:
        await evaluator.evaluate(job)
    assert not raised.value.permanent
    assert not (await builder.build(build_job(candidate, target))).cached
    assert isinstance((await evaluator.evaluate(job)).verdict, Measured | Unstable)


async def test_a_builder_does_not_answer_with_a_damaged_artifact(
    builder: LocalBuilder, target: Target, store: Path
) -> None:
    candidate = cpp(after("// to be lost"))
    built = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(built, Built)
    (artifact_folder(store, built.artifact_id) / "kernel.so").unlink()
    report = await builder.build(build_job(candidate, target))
    assert (report.outcome, report.cached) == (built, False)


async def test_an_artifact_that_cannot_be_read(
    builder: LocalBuilder, evaluator: LocalEvaluator, target: Target, store: Path
) -> None:
    candidate = cpp(after("// a folder where the file should be"))
    built = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(built, Built)
    product = artifact_folder(store, built.artifact_id) / "kernel.so"
    product.unlink()
    product.mkdir()
    with pytest.raises(EvaluatorError, match="cannot be read"):
        await evaluator.evaluate(evaluate_job(candidate, built.artifact_id, target))


async def test_an_artifact_of_another_host_will_never_do_here(
    builder: LocalBuilder, evaluator: LocalEvaluator, target: Target
) -> None:
    candidate = cpp(RIGHT)
    built = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(built, Built)
    elsewhere = replace(target, march="armv9-a")
    with pytest.raises(EvaluatorError, match="evaluate it where it was built for") as raised:
        await evaluator.evaluate(evaluate_job(candidate, built.artifact_id, elsewhere))
    assert raised.value.permanent


async def test_a_compiler_that_is_gone_since_it_was_found(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = LocalBuilder(tmp_path / "artifacts")
    assert isinstance((await builder.build(build_job(cpp(RIGHT), target))).outcome, Built)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EvaluatorError, match="no C\\+\\+ compiler") as raised:
        await builder.build(build_job(cpp(after("// something new")), target))
    assert raised.value.permanent
    with pytest.raises(EvaluatorError, match="no C\\+\\+ compiler"):
        probe_target("cpp")


async def test_more_threads_than_this_host_has_cores_will_never_do_here(judge: Judging) -> None:
    many = replace(SMALL_TASK, rules=TaskRules(threads=4096))
    with pytest.raises(EvaluatorError, match="4096 threads are asked for") as raised:
        await judge(RIGHT, many)
    assert raised.value.permanent


async def test_a_task_that_needs_more_memory_than_is_free_is_refused_with_the_numbers(judge: Judging) -> None:
    # Memory that is asked for and not touched takes none.
    large = SMALL_TASK.text.replace(
        "return [torch.rand(64, 256)]",
        "free = int(open('/proc/meminfo').read().split('MemAvailable:')[1].split()[0]) << 10\n"
        "    return [torch.empty(free // 4096, 256)]",
    )
    assert large != SMALL_TASK.text
    with pytest.raises(ConfigError, match="GiB of memory or more, but"):
        await judge(RIGHT, replace(SMALL_TASK, text=large))
