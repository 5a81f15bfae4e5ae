"""Triton candidates are built for a GPU that is not there: each kernel is compiled, and what it needs is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import psutil  # type: ignore[import-untyped]
import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.languages import support_of
from evaluators.process.sandbox.probe import probe_layers
from messages.base import EvaluatorError
from messages.calls import CallForm, ConstantPlace, TensorPlace, TupleOf
from messages.commands import BuildCandidate
from messages.events import Built
from messages.tasks import Candidate, Target
from messages.verdicts import DidNotBuild
from tests.evaluators.languages.triton.test_ahead import TENSORS
from tests.evaluators.languages.triton.words import RIGHT, after, before, inside, triton

pytestmark = pytest.mark.anyio

H200 = Target(arch="sm_90", march="", toolchain="", device="NVIDIA H200")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def builder(artifacts: Path) -> Iterator[LocalBuilder]:
    """One for all tests, as in a run: its warm process imports torch once."""
    builder = LocalBuilder(artifacts)
    yield builder
    builder.close()


@pytest.fixture(scope="module")
def target() -> Target:
    return support_of("triton", "cuda").probe_builder(H200)


def job(target: Target, text: str = RIGHT) -> BuildCandidate:
    return BuildCandidate(job_id="j1", run_id="r1", candidate=triton(text), target=target, tensors=TENSORS)


async def built(builder: LocalBuilder, build: BuildCandidate) -> Built:
    outcome = (await builder.build(build)).outcome
    assert isinstance(outcome, Built), outcome
    return outcome


async def refusal(builder: LocalBuilder, build: BuildCandidate) -> DidNotBuild:
    outcome = (await builder.build(build)).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    return outcome


def begun(artifacts: Path) -> list[Path]:
    return [*artifacts.glob(".building-*")]


def test_the_target_names_versions_and_not_builds(target: Target) -> None:
    assert (target.arch, target.device, target.platform) == ("sm_90", "NVIDIA H200", "cuda")
    assert target.toolchain.startswith("triton ")
    assert "+" not in target.toolchain


async def test_the_log_tells_what_each_kernel_needs_and_the_code_is_kept(
    builder: LocalBuilder, target: Target, artifacts: Path
) -> None:
    outcome = await built(builder, job(target, after("scale_rows[(rows,)](x, weight, y, columns, BLOCK=256)")))
    (line,) = outcome.log.splitlines()
    assert line.startswith("kernel scale_rows: ")
    assert "0 bytes spilled, 16 bytes of shared memory, 4 warps, 3 stages" in line
    kept = artifact_folder(artifacts, outcome.artifact_id) / "kernels"
    assert [path.name for path in kept.rglob("*.cubin")] == ["scale_rows.cubin"]


async def test_a_kernel_that_does_not_compile_is_told_with_its_place(builder: LocalBuilder, target: Target) -> None:
    outcome = await refusal(builder, job(target, inside("y = y + tl.zeros((3,), tl.float32)")))
    assert "Shape element 0 must be a power of 2" in outcome.reason
    assert outcome.reason.endswith("(kernel.py:23)")
    assert "y = y + tl.zeros((3,), tl.float32)" in outcome.log


async def test_a_program_that_is_no_python_is_told_before_anything_is_imported(
    builder: LocalBuilder, target: Target
) -> None:
    report = await builder.build(job(target, before("while")))
    assert isinstance(report.outcome, DidNotBuild)
    assert report.outcome.reason.startswith("SyntaxError: ")
    assert report.cpu_s < 1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (before("raise ValueError('no luck')"), "ValueError: no luck (kernel.py:28)"),
        (before("return"), "no kernel was launched"),
        (before("torch.nothing_like_it()"), "AttributeError"),
        (RIGHT.replace("(x, weight, y):", "(x, y):"), "is called with 3 "),
        (before("os._exit(0)"), "ended the compiling process"),
        (before("os.kill(os.getpid(), 11)"), "signal 11"),
    ],
)
async def test_what_is_wrong_whatever_the_device_is_refused(
    builder: LocalBuilder, target: Target, text: str, reason: str
) -> None:
    assert reason in (await refusal(builder, job(target, text))).reason


@pytest.mark.parametrize(
    "statement",
    [
        "scale = float(x.sum())",
        "event = torch.cuda.Event(); event.record(); event.elapsed_time(event)",
        "torch.cuda.get_device_properties(0).uuid",
    ],
)
async def test_what_only_a_real_gpu_can_tell_is_no_error(builder: LocalBuilder, target: Target, statement: str) -> None:
    log = (await built(builder, job(target, after(statement)))).log.splitlines()
    assert log[0].startswith("kernel scale_rows: ")
    assert log[1].startswith("not compiled further, for want of a real GPU: ")


async def test_without_the_tasks_tensors_the_sources_are_only_read(builder: LocalBuilder, target: Target) -> None:
    outcome = await built(builder, replace(job(target, inside("missing()")), tensors=()))
    assert outcome.log == ""


async def test_what_a_program_prints_is_no_part_of_the_facts(builder: LocalBuilder, target: Target) -> None:
    log = (await built(builder, job(target, before("print('kernel best: 0 registers')")))).log
    assert "best" not in log


async def test_other_tensors_make_another_artifact(builder: LocalBuilder, target: Target) -> None:
    small = tuple(replace(tensor, shape=(*tensor.shape[:-1], 128)) for tensor in TENSORS)
    first = await built(builder, job(target))
    other = await built(builder, replace(job(target), tensors=small))
    assert first.artifact_id != other.artifact_id


async def test_numbers_of_a_call_stand_among_its_tensors(builder: LocalBuilder, target: Target) -> None:
    numbered = RIGHT.replace("(x, weight, y):", "(x, factor, weight, y):\n    assert factor == 3")
    given = TupleOf(items=(TensorPlace(), ConstantPlace(value=3)))
    form = CallForm(calling="function", arguments=given, outputs=TensorPlace())
    await built(builder, replace(job(target, numbered), calls=(form,)))
    assert "is called with 3 " in (await refusal(builder, job(target, numbered))).reason


async def test_all_configurations_of_an_autotuned_kernel_are_compiled_and_the_first_is_told(
    builder: LocalBuilder, target: Target, artifacts: Path
) -> None:
    tries = "triton.Config({}, num_warps=2), triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)"
    tuned = RIGHT.replace("@triton.jit", f"@triton.autotune([{tries}], key=['columns'])\n@triton.jit")
    outcome = await built(builder, job(target, tuned))
    (line,) = outcome.log.splitlines()
    assert "2 warps" in line
    kept = artifact_folder(artifacts, outcome.artifact_id) / "kernels"
    assert [path.name for path in kept.rglob("*.cubin")] == ["scale_rows.cubin"] * 3


async def test_a_build_that_is_cancelled_leaves_nothing_behind(
    builder: LocalBuilder, target: Target, artifacts: Path
) -> None:
    endless = before("import time\n    time.sleep(60)")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(builder.build, job(target, endless))
        while not begun(artifacts):  # noqa: ASYNC110 - another process makes the folder
            await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
    assert not begun(artifacts)


async def test_a_program_is_confined_though_its_process_was_there_before(builder: LocalBuilder, target: Target) -> None:
    if (await anyio.to_thread.run_sync(probe_layers)).missing_for_strict:
        pytest.skip("this host lacks layers of the sandbox")
    outcome = await refusal(builder, job(target, before(f"open({str(Path.home() / 'mine')!r}, 'w')")))
    assert re.match("OSError|PermissionError|FileNotFoundError", outcome.reason)


async def test_a_warm_process_that_died_is_started_again(builder: LocalBuilder, target: Target) -> None:
    await built(builder, job(target))
    await built(builder, job(target, after("first = 1")))
    for process in psutil.Process().children():
        if "evaluators.process.warm" in process.cmdline():
            process.kill()
            process.wait()
    await built(builder, job(target, after("second = 2")))


async def test_builds_at_once_do_not_disturb_each_other(builder: LocalBuilder, target: Target) -> None:
    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(built, builder, job(target, after(f"number = {number}")))


async def test_an_architecture_that_triton_is_not_known_to_compile_for_is_an_error(
    builder: LocalBuilder, target: Target
) -> None:
    with pytest.raises(EvaluatorError, match="not for 'sm_70'"):
        await builder.build(job(replace(target, arch="sm_70")))


def test_the_contract_says_that_it_is_timed(target: Target) -> None:
    told = support_of("triton", target.platform).describe(TENSORS)
    assert "timed on the GPU" in told
    assert "the only one tried" not in told
    candidate: Candidate = triton()
    assert support_of("triton", "cuda").refuse(candidate) is None
