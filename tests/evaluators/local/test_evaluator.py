"""The local evaluator: its contract, its measuring, its errors and its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder
from evaluators.local import LocalEvaluator
from messages.base import ConfigError, EvaluatorError
from messages.codec import encode
from messages.events import Built
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import Measured, Unstable
from tests.contracts.evaluators import EvaluatorContract
from tests.evaluators.judging import Judging
from tests.evaluators.local.conftest import LIMITS
from tests.evaluators.words import (
    COLUMNS,
    RIGHT,
    ROWS,
    SLEEPY_TASK,
    SMALL_TASK,
    after,
    before,
    build_job,
    cpp,
    evaluate_job,
)
from tests.orphans import still_running

pytestmark = pytest.mark.anyio


class TestLocalEvaluator(EvaluatorContract):
    @pytest.fixture
    def task(self) -> TaskSpec:
        return SLEEPY_TASK

    @pytest.fixture
    def good(self) -> Candidate:
        return cpp(before("usleep(2000);"))

    @pytest.fixture
    def wrong(self) -> Candidate:
        return cpp(after("y[0] += 1;"))


@pytest.mark.quiet
async def test_the_same_work_on_both_sides_has_a_ratio_of_one_and_half_of_it_of_two(judge: Judging) -> None:
    same = await judge.measured(before("usleep(6000);"), SLEEPY_TASK)
    half = await judge.measured(before("usleep(3000);"), SLEEPY_TASK)
    assert same.speedup_interval is not None
    assert half.speedup_interval is not None
    assert 0.8 < same.speedup_interval.low < same.speedup_interval.high < 1.25
    assert 1.5 < half.speedup_interval.low < half.speedup_interval.high < 2.5


async def test_a_description_tells_tensors_contract_and_the_reference_verbatim(evaluator: LocalEvaluator) -> None:
    description = await evaluator.describe_task(SMALL_TASK, "cpp")
    assert [(tensor.name, tensor.role, tensor.shape) for tensor in description.tensors] == [
        ("x", "input", (ROWS, COLUMNS)),
        ("weight", "parameter", (COLUMNS,)),
        ("output", "output", (ROWS, COLUMNS)),
    ]
    assert description.bytes_moved == 4 * (2 * ROWS * COLUMNS + COLUMNS)
    assert f"```python\n{SMALL_TASK.text.strip()}\n```" in description.prompt
    assert 'extern "C" int ksearch_run(' in description.prompt
    assert "| `inputs[1]` | `weight` |" in description.prompt


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("torch.rand(64, 256)", "object()"), r"get_inputs\(\)\[0\] is object; it must be a tensor, a number"),
        (("return [torch.rand(64, 256)]", "raise ValueError('no data')"), r"get_inputs\(\) raises ValueError: no data"),
        (("return x *", "return 'text'; x *"), r"returns str; it must return a tensor"),
        (("return x *", "x.add_(1); return x *"), "changes its inputs"),
        (("return x *", "return torch.rand_like(x) *"), "is random"),
        (("import torch", "import no_such_module"), "ModuleNotFoundError"),
        (("torch.rand(64, 256)", "torch.rand(64, 256) * 1j"), "complex64, which is not supported"),
    ],
)
async def test_a_problem_that_cannot_be_used_is_bad_input_in_one_line(
    evaluator: LocalEvaluator, change: tuple[str, str], complaint: str
) -> None:
    task = replace(SMALL_TASK, text=SMALL_TASK.text.replace(*change, 1))
    assert task != SMALL_TASK
    with pytest.raises(ConfigError, match=complaint) as raised:
        await evaluator.describe_task(task, "cpp")
    assert "\n" not in str(raised.value)


async def test_dropout_is_judged_in_eval_mode_and_says_so(evaluator: LocalEvaluator) -> None:
    text = SMALL_TASK.text.replace("return x *", "return torch.nn.functional.dropout(x, training=self.training) *")
    description = await evaluator.describe_task(replace(SMALL_TASK, text=text), "cpp")
    assert "eval mode" in description.prompt


async def test_an_artifact_that_is_not_there_is_the_evaluators_error(evaluator: LocalEvaluator, target: Target) -> None:
    with pytest.raises(EvaluatorError, match="not in the store"):
        await evaluator.evaluate(evaluate_job(cpp(RIGHT), "0" * 32, target))


async def test_an_artifact_of_another_candidate_is_the_evaluators_error(
    builder: LocalBuilder, evaluator: LocalEvaluator, target: Target
) -> None:
    built = (await builder.build(build_job(cpp(RIGHT), target))).outcome
    assert isinstance(built, Built)
    with pytest.raises(EvaluatorError, match="of another candidate"):
        await evaluator.evaluate(evaluate_job(cpp(after("")), built.artifact_id, target))


async def test_a_killed_judge_is_an_error_for_its_job_and_is_replaced_for_the_next(
    judge: Judging,
) -> None:
    async with anyio.create_task_group() as group:

        async def expect_error() -> None:
            with pytest.raises(EvaluatorError, match="the judge died"):
                await judge(before("static int n = 0; n += 0 * n; for (;;) usleep(900);"))

        group.start_soon(expect_error)
        await kill_first("runners.native", parent=True)
    assert isinstance(await judge(RIGHT), Measured | Unstable)


async def kill_first(script: str, *, parent: bool) -> None:
    """Kill the first process below us that runs a script, or rather its parent."""
    with anyio.fail_after(60):
        while True:
            for child in psutil.Process().children(recursive=True):
                try:
                    if any(script in part for part in child.cmdline()):
                        os.kill(child.ppid() if parent else child.pid, signal.SIGKILL)
                        return
                except psutil.NoSuchProcess:
                    continue
            await anyio.sleep(0.01)


async def test_a_closed_evaluator_has_ended_all_its_processes(store: Path) -> None:
    evaluator = LocalEvaluator(store, slots=1, limits=LIMITS)
    before_it = set(psutil.Process().children(recursive=True))
    await evaluator.describe_task(SMALL_TASK, "cpp")
    started = set(psutil.Process().children(recursive=True)) - before_it
    assert len(started) >= 3
    await evaluator.aclose()
    _, alive = psutil.wait_procs(list(started), timeout=2)
    assert alive == []


async def test_a_killed_parent_leaves_no_process(
    builder: LocalBuilder, target: Target, store: Path, tmp_path: Path
) -> None:
    endless = cpp(before("for (;;) usleep(800);"))
    built = (await builder.build(build_job(endless, target))).outcome
    assert isinstance(built, Built)
    script = tmp_path / "parent.py"
    script.write_text(
        textwrap.dedent(f"""
        import anyio, pathlib
        from evaluators.judge.protocol import Limits
        from evaluators.local import LocalEvaluator
        from messages.codec import decode_command

        async def main():
            evaluator = LocalEvaluator(pathlib.Path({str(store)!r}), limits=Limits(first_call_s=600))
            await evaluator.evaluate(decode_command(pathlib.Path({str(tmp_path / "job")!r}).read_bytes()))

        anyio.run(main)
        """)
    )
    (tmp_path / "job").write_bytes(encode(evaluate_job(endless, built.artifact_id, target)))
    parent = subprocess.Popen([sys.executable, str(script)])  # noqa: ASYNC220 - it must be a child of this thread
    tree = await descendants_with(parent.pid, "runners.native")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert len(tree) >= 4
    assert still_running(tree) == []


async def descendants_with(pid: int, script: str) -> list[psutil.Process]:
    """Wait until something below a process runs a script; return all that is below it."""
    with anyio.fail_after(60):
        while True:
            try:
                tree = psutil.Process(pid).children(recursive=True)
                if any(script in part for child in tree for part in child.cmdline()):
                    return list(tree)
            except psutil.NoSuchProcess:
                pass
            await anyio.sleep(0.02)
