"""Submissions to GPUMode's problems, judged as candidates: problems of our own in that format."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from evaluators.tasks.gpumode.packing import candidate_of_text
from evaluators.tasks.gpumode.reading import read_task
from messages.tasks import TaskSpec
from messages.verdicts import Measured, Outpaced, Unstable, Verdict, Wrong
from tests.evaluators.judging import Judging
from tests.evaluators.tasks.gpumode import problems

pytestmark = pytest.mark.anyio

CORRECT = (Measured, Outpaced, Unstable)
"""How steady its time can be told depends on the host's other work."""
Judged: TypeAlias = Callable[[str, TaskSpec], Awaitable[Verdict]]
SIGNS = """import torch


def custom_kernel(data):
    return {}torch.linalg.eigh(data).eigenvectors
"""
EIGEN = """import torch
from task import input_t, output_t


def ref_kernel(data: input_t) -> output_t:
    return torch.linalg.eigh(data).eigenvectors


def generate_input(rows: int, width: int, seed: int, nomask: bool) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.randn(rows, 8, 8, device="cuda", generator=gen)
    return a + a.mT


def check_implementation(data, output):
    moved = output.mT @ data @ output
    rest = moved - torch.diag_embed(moved.diagonal(dim1=-2, dim2=-1))
    eye = output.mT @ output - torch.eye(8)
    good = bool(rest.abs().max() < 1e-3) and bool(eye.abs().max() < 1e-3)
    return good, "these are no eigenvectors"
"""


@pytest.fixture(scope="module")
async def judged(store: Path, builder: LocalBuilder) -> AsyncIterator[Judged]:
    evaluator = LocalEvaluator(store, slots=1, limits=Limits())

    async def judge(text: str, task: TaskSpec) -> Verdict:
        written = partial(candidate_of_text, task=task)
        return await Judging(builder, evaluator, probe_target("python"), written)(text, task)

    yield judge
    await evaluator.aclose()


@pytest.mark.long
async def test_a_submission_that_keeps_the_mask_is_right_and_one_that_ignores_it_is_wrong(
    judged: Judged, tmp_path: Path
) -> None:
    task = read_task(f"{problems.masked(tmp_path)}:benchmark/1")
    assert isinstance(await judged(problems.MASKED_RIGHT, task), CORRECT)
    assert isinstance(await judged(problems.MASKED_WRONG, task), Wrong)


@pytest.mark.long
async def test_as_upstream_reads_the_cases_nobody_needs_the_mask(judged: Judged, tmp_path: Path) -> None:
    task = read_task(f"{problems.masked(tmp_path)}:upstream-benchmark/1")
    verdict = await judged(problems.MASKED_WRONG, task)
    # Right on all that is drawn: only data of ours, with other values in the mask, tells it from the reference.
    assert isinstance(verdict, CORRECT) or (
        isinstance(verdict, Wrong) and verdict.family in {"sparse", "other constants"}
    ), verdict


@pytest.mark.long
async def test_room_for_an_output_is_written_to_and_a_kernel_that_leaves_it_is_wrong(
    judged: Judged, tmp_path: Path
) -> None:
    task = read_task(f"{problems.with_room(tmp_path)}:benchmark")
    assert isinstance(await judged(problems.ROOM_RIGHT, task), CORRECT)
    assert isinstance(await judged(problems.ROOM_WRONG, task), Wrong)


@pytest.mark.long
async def test_a_forward_and_a_backward_pass_are_one_candidate(judged: Judged, tmp_path: Path) -> None:
    task = read_task(f"{problems.with_passes(tmp_path)}:benchmark/1")
    assert isinstance(await judged(problems.PASSES_RIGHT, task), CORRECT)
    assert isinstance(await judged(problems.PASSES_RIGHT.replace("grad_output[:", "-grad_output[:"), task), Wrong)


@pytest.mark.long
async def test_where_the_problem_checks_properties_other_signs_are_right(judged: Judged, tmp_path: Path) -> None:
    folder = problems.masked(tmp_path)
    (folder / "reference.py").write_text(EIGEN)
    task = read_task(f"{folder}:test/0")
    assert isinstance(await judged(SIGNS.format("-"), task), CORRECT)
    wrong = await judged(SIGNS.format("2 * "), task)
    assert isinstance(wrong, Wrong)
    assert "these are no eigenvectors" in wrong.reason
