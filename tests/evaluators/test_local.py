"""The local evaluator, with a real compiler, real judges and candidates that misbehave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from evaluators.builder import LocalBuilder
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from evaluators.target import probe_target
from messages.codec import encode
from messages.errors import ConfigError, EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import Crashed, Measured, TimedOut, Unstable, Verdict, Wrong
from tests.contracts.evaluators import EvaluatorContract
from tests.evaluators.words import (
    COLUMNS,
    RIGHT,
    ROWS,
    SMALL_TASK,
    TVM_FFI,
    after,
    before,
    build_job,
    cpp,
    evaluate_job,
)

pytestmark = pytest.mark.anyio

LIMITS = Limits(first_call_s=1.0, call_s=0.5, call_slowdown=1.0, memory_bytes=1 << 30)
SLEEPY_TASK = replace(
    SMALL_TASK,
    name="sleepy",
    text=SMALL_TASK.text.replace("return x *", "__import__('time').sleep(0.006); return x *"),
)


LARGE_TASK = TaskSpec(
    name="large",
    source="kernelbench",
    text=textwrap.dedent("""
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                return x * 2

        def get_inputs():
            return [torch.rand(1024, 2048)]

        def get_init_inputs():
            return []
    """),
)
LARGE = """
    #include <cstdint>
    extern "C" int ksearch_run(const void* const* in, void* const* out, const int64_t* const*) {
        for (int64_t i = 0; i < 1024 * 2048; ++i) ((float*)out[0])[i] = 2 * ((const float*)in[0])[i];
        return 0;
    }
"""


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """One event loop for the module: judges are kept between tests, as in a run."""
    return ("asyncio", {})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("cpp")


@pytest.fixture(scope="module")
def builder(store: Path) -> LocalBuilder:
    return LocalBuilder(store)


@pytest.fixture(scope="module")
async def evaluator(store: Path) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(store, slots=2, limits=LIMITS)
    yield evaluator
    await evaluator.aclose()


@pytest.fixture(scope="module")
def judge(builder: LocalBuilder, evaluator: LocalEvaluator, target: Target) -> Judging:
    return Judging(builder, evaluator, target)


class Judging:
    """Builds a source and has it judged."""

    def __init__(self, builder: LocalBuilder, evaluator: LocalEvaluator, target: Target) -> None:
        self._builder = builder
        self._evaluator = evaluator
        self._target = target

    async def __call__(self, text: str, task: TaskSpec = SMALL_TASK) -> Verdict:
        candidate = cpp(text)
        built = (await self._builder.build(build_job(candidate, self._target))).outcome
        assert isinstance(built, Built), built
        job = evaluate_job(candidate, built.artifact_id, self._target, task)
        return (await self._evaluator.evaluate(job)).verdict


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


async def crash(judge: Judging, text: str) -> Crashed:
    verdict = await judge(text)
    assert isinstance(verdict, Crashed), verdict
    return verdict


async def mistake(judge: Judging, text: str) -> Wrong:
    verdict = await judge(text)
    assert isinstance(verdict, Wrong), verdict
    return verdict


async def test_a_measured_candidate_comes_with_its_checks_and_how_it_was_timed(judge: Judging) -> None:
    verdict = await judge(before("usleep(2000);"), SLEEPY_TASK)
    assert isinstance(verdict, Measured)
    assert verdict.timed
    assert {check.family for check in verdict.checks} == {"given", "centred", "perturbed parameters"}
    assert all(check.error_ratio <= 1 for check in verdict.checks)
    assert verdict.pairs >= 8
    assert verdict.speedup_interval is not None
    assert verdict.speedup_vs_reference is not None
    assert verdict.speedup_interval.low <= verdict.speedup_vs_reference <= verdict.speedup_interval.high
    assert any("seeds" in note for note in verdict.notes)


async def test_the_reference_has_its_memory_before_it_is_timed(judge: Judging) -> None:
    verdict = await judge(LARGE, LARGE_TASK)
    assert isinstance(verdict, Measured)
    assert not [note for note in verdict.notes if "new memory" in note]


async def test_the_tvm_ffi_contract_is_called_as_well(judge: Judging) -> None:
    assert isinstance(await judge(TVM_FFI), Measured | Unstable)


async def test_an_exception_through_tvm_ffi_is_told(judge: Judging) -> None:
    verdict = await crash(judge, TVM_FFI.replace("// after", 'TVM_FFI_THROW(RuntimeError) << "no luck";'))
    assert "no luck" in verdict.log


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (RIGHT.replace("* scale;", "* scale * 0.5f;"), "constant factor: the output is 0.5 times"),
        (
            RIGHT.replace("c < columns; ++c) y", "c < columns - 6; ++c) y"),
            "tail columns: only columns 250 to 255 of 256",
        ),
        (RIGHT.replace("r < rows", "r < rows - 3"), "unwritten: 768 of 16384"),
        (
            RIGHT.replace("y[r * columns + c] =", "y[(r + 1) % rows * columns + c] ="),
            "off by one row: each row is one row late",
        ),
        (after("y[5] = std::sqrt(-1.0f);"), "NaN where the reference has none"),
    ],
)
async def test_a_wrong_output_is_told_with_its_pattern(judge: Judging, text: str, pattern: str) -> None:
    verdict = await mistake(judge, text)
    assert any(found.startswith(pattern) for found in verdict.patterns), verdict


async def test_the_first_wrong_element_is_named(judge: Judging) -> None:
    verdict = await mistake(judge, after("y[3 * columns + 7] = 100;"))
    assert verdict.first_wrong == (3, 7)
    assert (verdict.wrong_elements, verdict.elements) == (1, ROWS * COLUMNS)


async def test_a_shortcut_that_holds_for_the_given_inputs_only_is_caught_on_centred_ones(judge: Judging) -> None:
    verdict = await mistake(judge, RIGHT.replace("std::fabs(x[r * columns + c])", "x[r * columns + c]"))
    assert verdict.family == "centred"


async def test_parameters_that_are_ignored_are_caught(judge: Judging) -> None:
    kept = "static float w[4096]; static int n = 0; if (!n++) for (int i = 0; i < 256; ++i) w[i] = weight[i];"
    verdict = await mistake(judge, before(kept).replace("* weight[c]", "* w[c]"))
    assert verdict.family == "perturbed parameters"


async def test_an_output_kept_from_an_earlier_call_is_caught(judge: Judging) -> None:
    copy = "{ for (int i = 0; i < 16384; ++i) y[i] = old[i]; return 0; }"
    kept = f"static std::vector<float> old; if (!old.empty()) {copy}"
    verdict = await mistake(judge, before(kept).replace("// after", "old.assign(y, y + 16384);"))
    assert verdict.family != "given"


async def test_a_candidate_that_is_wrong_only_when_timed_is_wrong(judge: Judging) -> None:
    verdict = await mistake(judge, before("static int calls = 0; if (++calls > 10) return 0;"))
    assert "timed call" in verdict.family


async def test_work_that_goes_on_after_the_call_has_returned_does_not_count(judge: Judging) -> None:
    late = "std::thread([=] { usleep(2000); y[7] = kept; }).detach();"
    verdict = await mistake(judge, after(f"const float kept = y[7]; y[7] = 1e9f; {late}"))
    assert verdict.first_wrong == (0, 7)


async def test_writing_beside_an_output_is_caught(judge: Judging) -> None:
    verdict = await mistake(judge, after("y[rows * columns] = 1;"))
    assert "bounds" in verdict.reason


async def test_a_precision_below_the_tasks_is_wrong(judge: Judging) -> None:
    half = "for (int i = 0; i < 16384; ++i) y[i] = static_cast<float>(static_cast<_Float16>(y[i]));"
    assert (await mistake(judge, after(half))).max_abs_error < 1e-3


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("volatile int* p = nullptr; *p = 1;", "SIGSEGV"),
        ("abort();", "SIGABRT"),
        ("exit(0);", "exit code 0"),
        ("return 7;", "returned 7"),
        ('throw std::runtime_error("no luck");', "SIGABRT"),
        ("const_cast<float*>(x)[3] = 1;", "writes to its inputs, which are mapped read-only"),
        ("mprotect((void*)x, 4096, PROT_READ | PROT_WRITE); const_cast<float*>(x)[3] = 1;", "SIGSEGV"),
        ("std::vector<char> all(size_t(8) << 30, 1); y[0] += all[9];", "SIGABRT"),
    ],
)
async def test_a_process_that_dies_is_a_crash_with_its_cause(judge: Judging, statement: str, reason: str) -> None:
    verdict = await crash(judge, before(statement))
    assert reason in verdict.reason
    assert verdict.stage == "first call"


async def test_what_a_crashing_candidate_printed_is_shown(judge: Judging) -> None:
    verdict = await crash(judge, before('throw std::runtime_error("no luck");'))
    assert "no luck" in verdict.log


async def test_an_endless_call_is_killed_at_its_limit(judge: Judging) -> None:
    verdict = await judge(before("for (;;) usleep(1000);"))
    assert isinstance(verdict, TimedOut)
    assert (verdict.stage, verdict.limit_s) == ("first call", 1.0)


async def test_a_later_call_has_a_limit_of_its_own(judge: Judging) -> None:
    verdict = await judge(before("static int calls = 0; if (++calls == 3) for (;;) usleep(1000);"))
    assert isinstance(verdict, TimedOut)
    assert (verdict.stage, verdict.limit_s) == ("call", 0.5)


async def test_printing_ten_megabytes_disturbs_nobody(judge: Judging) -> None:
    loud = 'for (int i = 0; i < 200000; ++i) puts("it says the same again and again, and so on, and so on");'
    assert isinstance(await judge(before(f"static int calls = 0; if (!calls++) {loud}")), Measured | Unstable)


async def test_a_grandchild_is_gone_after_the_verdict(judge: Judging) -> None:
    escape = "static int calls = 0; if (!calls++ && !fork()) { setsid(); if (!fork()) for (;;) sleep(60); _exit(0); }"
    assert isinstance(await judge(before(escape)), Measured | Unstable)
    below = psutil.Process().children(recursive=True)
    assert [child for child in below if any("runners.native" in part for part in child.cmdline())] == []


async def test_the_same_work_on_both_sides_has_a_ratio_of_one_and_half_of_it_of_two(judge: Judging) -> None:
    same = await judge(before("usleep(6000);"), SLEEPY_TASK)
    half = await judge(before("usleep(3000);"), SLEEPY_TASK)
    assert isinstance(same, Measured)
    assert isinstance(half, Measured)
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
        (("torch.rand(64, 256)", "3.0"), r"get_inputs\(\)\[0\] is float, not a tensor"),
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
    with anyio.fail_after(10):
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
    _, alive = psutil.wait_procs(tree, timeout=2)
    assert alive == []


async def descendants_with(pid: int, script: str) -> list[psutil.Process]:
    """Wait until something below a process runs a script; return all that is below it."""
    with anyio.fail_after(20):
        while True:
            try:
                tree = psutil.Process(pid).children(recursive=True)
                if any(script in part for child in tree for part in child.cmdline()):
                    return list(tree)
            except psutil.NoSuchProcess:
                pass
            await anyio.sleep(0.02)
