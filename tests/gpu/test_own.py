"""Our own kernels for GPUs are right: Triton's by its interpreter, CUDA's emulated, and nvcc takes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio.to_thread
import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.languages.cuda.toolchain import probe
from evaluators.local import LocalEvaluator
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, TaskSpec
from messages.verdicts import Measured, Outpaced, Unstable, Verdict, Wrong
from tests.evaluators.words import build_job, evaluate_job
from tests.gpu.emulation import emulated
from tests.gpu.own import NAMES, candidate_of, small_task, source_of

pytestmark = pytest.mark.anyio
CORRECT = (Measured, Outpaced, Unstable)
"""What becomes of a right candidate whose time, emulated, is no matter."""


@pytest.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(tmp_path)
    yield evaluator
    await evaluator.aclose()


async def judge(candidate: Candidate, task: TaskSpec, store: Path, evaluator: LocalEvaluator) -> Verdict:
    target = await anyio.to_thread.run_sync(partial(probe_target, candidate.language))
    built = (await LocalBuilder(store).build(build_job(candidate, target))).outcome
    assert isinstance(built, Built), built
    job = evaluate_job(candidate, built.artifact_id, target, task)
    return (await evaluator.evaluate(job)).verdict


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
async def test_a_triton_kernel_is_right(name: str, tmp_path: Path, evaluator: LocalEvaluator) -> None:
    verdict = await judge(candidate_of(name, "triton"), small_task(name), tmp_path, evaluator)
    assert isinstance(verdict, Measured), verdict


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
async def test_a_cuda_kernel_is_right_when_emulated(name: str, tmp_path: Path, evaluator: LocalEvaluator) -> None:
    verdict = await judge(emulated(source_of(name, "cuda")), small_task(name), tmp_path, evaluator)
    assert isinstance(verdict, CORRECT), verdict


@pytest.mark.timeout(240)
async def test_the_emulation_finds_a_spoilt_kernel(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    spoilt = tmp_path / "spoilt.cu"
    spoilt.write_text(source_of("softmax", "cuda").read_text().replace("step /= 2", "step /= 4"))
    verdict = await judge(emulated(spoilt), small_task("softmax"), tmp_path, evaluator)
    assert isinstance(verdict, Wrong), verdict


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", NAMES)
async def test_the_compiler_takes_a_cuda_kernel_for_a_gpu(name: str, tmp_path: Path) -> None:
    try:
        target = await anyio.to_thread.run_sync(partial(probe, "NVIDIA H200", "sm_90"))
    except EvaluatorError as error:
        pytest.skip(str(error))
    built = (await LocalBuilder(tmp_path).build(build_job(candidate_of(name, "cuda"), target))).outcome
    assert isinstance(built, Built), built
    assert "spill" not in built.log or "0 bytes spill" in built.log
