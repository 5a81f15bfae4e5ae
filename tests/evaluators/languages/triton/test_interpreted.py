"""Triton candidates under the interpreter: real judges, real runners, and candidates that misbehave."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import Crashed, DidNotBuild, Measured, Rejected, TimedOut, Wrong
from tests.contracts.evaluators import EvaluatorContract
from tests.evaluators.judging import Judging
from tests.evaluators.languages.triton.words import BFLOAT16_TASK, RIGHT, after, before, inside, triton
from tests.evaluators.words import SMALL_TASK, build_job, evaluate_job

pytestmark = pytest.mark.anyio

LIMITS = Limits(load_s=10.0, first_call_s=2.0, call_s=2.0, call_slowdown=1.0, memory_bytes=2 << 30)
WARM = "interpreted"


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """One event loop for the module: judges are kept between tests, as in a run."""
    return ("asyncio", {})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("triton")


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
    return Judging(builder, evaluator, target, triton)


class TestInterpretedEvaluator(EvaluatorContract):
    @pytest.fixture
    def task(self) -> TaskSpec:
        return SMALL_TASK

    @pytest.fixture
    def good(self) -> Candidate:
        return triton()

    @pytest.fixture
    def wrong(self) -> Candidate:
        return triton(inside("y = y + 1"))


async def test_a_right_candidate_is_measured_but_not_timed_and_says_what_was_not_checked(judge: Judging) -> None:
    verdict = await judge(RIGHT)
    assert isinstance(verdict, Measured)
    assert not verdict.timed
    assert (verdict.speedup_vs_reference, verdict.speedup_interval, verdict.latency_us) == (None, None, None)
    families = [check.family for check in verdict.checks]
    assert families[:3] == ["given", "centred", "spikes"]
    assert (len(families), families[-1]) == (6, "perturbed parameters")
    assert "not timed: Triton's interpreter tells nothing about speed" in verdict.notes
    assert any("checked in 6 calls" in note for note in verdict.notes)


async def test_nothing_is_started_to_time_and_no_lease_is_taken(
    judge: Judging, builder: LocalBuilder, evaluator: LocalEvaluator, target: Target
) -> None:
    await judge(RIGHT)
    built = (await builder.build(build_job(triton(), target))).outcome
    assert isinstance(built, Built)
    report = await evaluator.evaluate(evaluate_job(triton(), built.artifact_id, target))
    assert report.lease_s == 0
    assert evaluator._pools["time"].judges == 0


@pytest.mark.long
async def test_bfloat16_is_computed_and_compared(judge: Judging) -> None:
    assert isinstance(await judge(RIGHT, BFLOAT16_TASK), Measured)
    assert isinstance(await judge(inside("y = y * 1.3"), BFLOAT16_TASK), Wrong)


async def test_an_autotuned_kernel_runs_with_its_first_configuration(judge: Judging) -> None:
    configurations = "[triton.Config({'BLOCK': 256}), triton.Config({'BLOCK': 3})]"
    tuned = RIGHT.replace("@triton.jit", f"@triton.autotune({configurations}, key=['columns'])\n@triton.jit")
    assert isinstance(await judge(tuned.replace(", BLOCK=triton.next_power_of_2(columns))", ")")), Measured)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (inside("y = y * 0.5"), "constant factor: the output is 0.5 times"),
        (inside("mask = offsets < columns - 6"), "unwritten: 384 of 16384"),
        (inside("tl.store(y_ptr + 64 * 256, 1.0)"), "outside its outputs' bounds"),
        (inside("y = y.to(tl.float16).to(tl.float32)"), "expected"),
        (before("if not kept:\n        kept.append(weight.clone())\n    weight = kept[0]"), "expected"),
        (
            after(
                "value = float(y[0, 7]); y[0, 7] = 1e9; "
                "threading.Thread(target=lambda: (time.sleep(0.05), y[0, 7:8].fill_(value)), daemon=True).start()"
            ),
            "output[0, 7] is 1e+09",
        ),
    ],
)
async def test_a_wrong_output_is_wrong(judge: Judging, text: str, said: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Wrong), verdict
    assert said in f"{verdict.reason} {verdict.patterns}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (before("raise ValueError('no luck')"), "ValueError: no luck (kernel.py:28)"),
        (inside("y = y + tl.zeros((8,), tl.float32)"), "256 and 8 (kernel.py:23)"),
        (inside("tl.store(y_ptr + (1 << 40), 1.0)"), "SIGSEGV"),
        (inside("tl.store(x_ptr, 1.0)"), "it writes to its inputs, which are mapped read-only"),
        (before("x.mul_(2)"), "it writes to its inputs, which are mapped read-only"),
        (before("sys.exit(0)"), "SystemExit: 0"),
        (before("os._exit(0)"), "exit code 0"),
        (before("os.abort()"), "SIGABRT"),
        (before("kept.append(bytes(4 << 30))"), "MemoryError"),
    ],
)
async def test_a_crash_is_told(judge: Judging, text: str, reason: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Crashed), verdict
    assert reason in verdict.reason
    assert verdict.stage == "first call"


async def test_what_a_kernel_raises_is_shown_with_its_source_lines_and_no_path_of_this_host(judge: Judging) -> None:
    verdict = await judge(inside("y = y + nowhere"))
    assert isinstance(verdict, Crashed)
    assert verdict.log.splitlines() == [
        "kernel.py:30 in ksearch_run: "
        "scale_rows[(rows,)](x, weight, y, columns, BLOCK=triton.next_power_of_2(columns))",
        "kernel.py:23 in scale_rows: y = y + nowhere",
        "NameError: name 'nowhere' is not defined",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nowhere\n" + RIGHT, "ModuleNotFoundError: there is no module 'nowhere' here. Importable are"),
        (RIGHT.replace("(x, weight, y):", "(x, y):"), "is called with 3 arguments"),
        (RIGHT + "\nksearch_run = 3\n", "ksearch_run is not defined"),
    ],
)
async def test_a_program_that_cannot_be_loaded_did_not_build(judge: Judging, text: str, reason: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, DidNotBuild), verdict
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("text", "operator"),
    [
        (before("y.copy_(x * weight / (1 + x.abs().mean(-1, keepdim=True)))\n    return"), "aten::mean"),
        (before("try:\n        x.abs().mean()\n    except Exception:\n        pass"), "aten::mean"),
        (after("torch.softmax(x, -1)"), "aten::softmax"),
        (RIGHT.replace("kept = []", "kept = [torch.ones(4, 4) @ torch.ones(4, 4)]"), "aten::matmul"),
    ],
    ids=["instead of a kernel", "error caught", "besides a kernel", "at import"],
)
async def test_a_library_call_is_rejected_and_named(judge: Judging, text: str, operator: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Rejected), verdict
    assert verdict.rule == "library call"
    assert operator in verdict.reason


@pytest.mark.parametrize(
    "text",
    [
        before("if kept:\n        y.copy_(kept[0])\n        return").replace("# after", "kept.append(y.clone())"),
        before(
            "mean = x.abs() / x.shape[1]\n"
            "    while mean.shape[1] > 1:\n"
            "        mean = mean[:, ::2] + mean[:, 1::2]\n"
            "    y.copy_(x * weight / (1 + mean))\n"
            "    return"
        ),
    ],
    ids=["result kept", "other operators"],
)
async def test_a_call_that_launches_no_kernel_is_rejected(judge: Judging, text: str) -> None:
    verdict = await judge(text)
    assert isinstance(verdict, Rejected), verdict
    assert verdict.rule == "no kernel launched"


async def test_an_endless_call_is_killed_at_its_limit(judge: Judging) -> None:
    verdict = await judge(before("while True: pass"))
    assert isinstance(verdict, TimedOut)
    assert verdict.limit_s == LIMITS.first_call_s


async def test_printing_ten_megabytes_disturbs_nobody_and_hides_no_error(judge: Judging) -> None:
    loud = "print('the same again and again ' * 400_000)"
    assert isinstance(await judge(before(loud)), Measured)
    verdict = await judge(before(f"{loud}; raise ValueError('no luck')"))
    assert isinstance(verdict, Crashed)
    assert "no luck" in verdict.reason


async def test_what_a_candidate_does_to_triton_is_gone_with_it(judge: Judging) -> None:
    assert isinstance(
        await judge(after("for each in (tl, triton, torch): vars(each).update(load=None, jit=None, empty=None)")),
        Crashed,
    )
    assert isinstance(await judge(f"# after that\n{RIGHT}"), Measured)


async def test_a_program_cannot_fork_and_the_warm_process_stays_with_one_thread(judge: Judging) -> None:
    escape = "\n    if not kept and not os.fork():\n        os.setsid()\n        time.sleep(1000)\n    kept.append(1)"
    verdict = await judge(before(escape))
    assert isinstance(verdict, Crashed)
    assert "PermissionError" in verdict.reason
    warm = [child for child in psutil.Process().children(recursive=True) if is_warm(child)]
    assert warm
    assert {process.num_threads() for process in warm} == {1}
    assert all(process.children() == [] for process in warm)
    modules = {
        line[line.index("evaluators.process.warm") + 1] for line in (process.parent().cmdline() for process in warm)
    }
    assert modules == {"evaluators.judge.entry"}


async def test_a_killed_warm_process_is_an_error_for_the_job_and_is_replaced(judge: Judging) -> None:
    await judge(RIGHT)
    for child in psutil.Process().children(recursive=True):
        if is_warm(child):
            os.kill(child.pid, signal.SIGKILL)
    failures: list[str] = []
    while len(failures) < 3:
        try:
            assert isinstance(await judge(f"# another\n{RIGHT}"), Measured)
        except EvaluatorError as error:
            failures.append(str(error))
        else:
            break
    assert failures
    assert len(failures) <= 2, "one for each judge at most"
    assert all("warm interpreter process" in failure for failure in failures)


async def test_a_cancelled_evaluation_leaves_no_process(store: Path, builder: LocalBuilder, target: Target) -> None:
    evaluator = LocalEvaluator(store, slots=1, limits=Limits(first_call_s=600.0))
    endless = triton(before("while True: pass"))
    built = (await builder.build(build_job(endless, target))).outcome
    assert isinstance(built, Built)
    before_it = set(psutil.Process().children(recursive=True))
    async with anyio.create_task_group() as group:
        group.start_soon(evaluator.evaluate, evaluate_job(endless, built.artifact_id, target))
        started = await started_runner(before_it)
        group.cancel_scope.cancel()
    await evaluator.aclose()
    _, alive = psutil.wait_procs(started, timeout=5)
    assert alive == []


async def started_runner(before_it: set[psutil.Process]) -> list[psutil.Process]:
    """Wait until a judge has a runner besides its warm process; return all that was started."""
    with anyio.fail_after(60):
        while True:
            started = set(psutil.Process().children(recursive=True)) - before_it
            if sum(map(is_warm, started)) >= 2:
                return list(started)
            await anyio.sleep(0.02)


def is_warm(process: psutil.Process) -> bool:
    """Say whether a process is a warm one, or a runner forked from it."""
    try:
        return WARM in process.cmdline()
    except psutil.NoSuchProcess:
        return False
