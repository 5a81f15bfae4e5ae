"""The evaluator on a GPU: proofs of every language, a second baseline, and the same figure again."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.hardware.target import probe_target
from evaluators.judge.proof import prove_builder, prove_evaluator
from evaluators.local import LocalEvaluator
from messages.base import Language
from messages.commands import BuildCandidate, EvaluateCandidate, Purpose
from messages.events import Built
from messages.tasks import Candidate, SourceFile, TaskRules, TaskSpec, Workload
from messages.verdicts import Crashed, Measured, Outpaced, Unstable, Verdict, Wrong

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU"),
]

DEVICE = "cuda:0"
LANGUAGES: tuple[Language, ...] = ("cuda", "triton", "python")
TASK = TaskSpec(
    name="double",
    source="kernelbench",
    text="""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x + 1


def get_inputs():
    return [torch.rand(8192, 8192)]


def get_init_inputs():
    return []
""",
)
SHAPES = TaskSpec(
    name="doubles",
    source="kernelbench",
    text=TASK.text.replace("get_inputs()", "get_inputs(rows)").replace("rand(8192, 8192)", "rand(rows, 4096)"),
    workloads=(
        Workload(name="small", dimensions={"rows": 1024}),
        Workload(name="large", dimensions={"rows": 16384}),
        Workload(name="middle", dimensions={"rows": 4096}),
        Workload(name="odd", dimensions={"rows": 3001}, hidden=True),
    ),
)
KERNEL = """
#include <cstdint>
#include <cuda_runtime.h>

__global__ void doubled(const float4* x, float4* y, int64_t count) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= count) return;
    const float4 v = x[i];
    y[i] = make_float4(2 * v.x + 1, 2 * v.y + 1, 2 * v.z + 1, 2 * v.w + 1);
}

extern "C" int ksearch_run(
    const void* const* inputs, void* const* outputs, const int64_t* const* shapes, void* stream) {
    const int64_t count = shapes[0][0] * shapes[0][1] / 4;
    doubled<<<(count + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const float4*>(inputs[0]), static_cast<float4*>(outputs[0]), count);
    return cudaGetLastError();
}
"""

MODULE = """
import os

import torch
import triton
import triton.language as tl
from torch import nn

BUILT = os.path.join(os.path.dirname(__file__), "kernels")


def kernels_of(cache):
    found = {folder: os.listdir(os.path.join(cache, folder)) for folder in os.listdir(cache)}
    return {folder for folder, names in found.items() if any(name.endswith(".cubin") for name in names)}


@triton.jit
def doubled(x_ptr, y_ptr, count, rows: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, 2 * tl.load(x_ptr + place, mask=place < count) + 1, mask=place < count)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        if not x.is_meta:
            os.environ["CC"] = "false"  # the C compiler by which some versions of Triton make what launches a kernel
        doubled[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), x.shape[0], BLOCK=1024)
        if not x.is_meta and kernels_of(os.environ["TRITON_CACHE_DIR"]) - kernels_of(BUILT):
            raise RuntimeError("compiled here")
        return y
"""
"""With a kernel for each number of rows. It fails if a call compiles one, or what launches it."""


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_known_kernel_is_measured_and_a_spoilt_one_found_wrong(language: Language, tmp_path: Path) -> None:
    target = probe_target(language, DEVICE)
    builder, evaluator = LocalBuilder(tmp_path), LocalEvaluator(tmp_path, device=DEVICE)
    try:
        await prove_builder(builder, language, target)
        await prove_evaluator(builder, evaluator, language, target)
    finally:
        await evaluator.aclose()


async def test_a_figure_is_the_same_in_new_processes_and_stands_beside_the_compilers(tmp_path: Path) -> None:
    target = probe_target("cuda", DEVICE)
    candidate = Candidate(
        language="cuda", entry_point="ksearch_run", files=(SourceFile(path="kernel.cu", text=KERNEL),)
    )
    built = await LocalBuilder(tmp_path).build(
        BuildCandidate(job_id="b", run_id="r", candidate=candidate, target=target)
    )
    assert isinstance(built.outcome, Built)
    job = EvaluateCandidate(
        job_id="e",
        run_id="r",
        task=TASK,
        candidate=candidate,
        artifact_id=built.outcome.artifact_id,
        target=target,
        purpose="confirm",
    )
    found: list[Measured] = []
    for _ in range(3):
        evaluator = LocalEvaluator(tmp_path, device=DEVICE, baseline="torch.compile")
        try:
            report = await evaluator.evaluate(job)
        finally:
            await evaluator.aclose()
        assert isinstance(report.verdict, Measured)
        assert report.unit == DEVICE
        assert "seccomp (may start compilers)" in report.isolation
        found.append(report.verdict)
    speedups = [verdict.speedup_vs_reference or 0.0 for verdict in found]
    assert max(speedups) < 1.02 * min(speedups)
    assert all(verdict.baseline == "torch.compile" for verdict in found)
    assert all((verdict.speedup_vs_baseline or 0.0) > 0.5 for verdict in found)


async def judged_on_shapes(text: str, purpose: Purpose, folder: Path, keep_above: float | None = None) -> Verdict:
    target = probe_target("cuda", DEVICE)
    candidate = Candidate(language="cuda", entry_point="ksearch_run", files=(SourceFile(path="kernel.cu", text=text),))
    build = BuildCandidate(job_id="b", run_id="r", candidate=candidate, target=target)
    built = (await LocalBuilder(folder).build(build)).outcome
    assert isinstance(built, Built)
    evaluator = LocalEvaluator(folder, device=DEVICE, baseline="torch.compile")
    job = EvaluateCandidate(
        job_id="e",
        run_id="r",
        task=SHAPES,
        candidate=candidate,
        artifact_id=built.artifact_id,
        target=target,
        purpose=purpose,
        keep_above=keep_above,
    )
    try:
        return (await evaluator.evaluate(job)).verdict
    finally:
        await evaluator.aclose()


async def test_one_judge_times_each_of_several_workloads_beside_both_baselines(tmp_path: Path) -> None:
    verdict = await judged_on_shapes(KERNEL, "screen", tmp_path)
    assert isinstance(verdict, Measured), verdict
    latencies = {one.name: one.latency_us for one in verdict.workloads}
    assert latencies["small"] < latencies["middle"] < latencies["large"]
    assert all(one.baseline_interval is not None and one.pairs >= 8 for one in verdict.workloads)
    assert verdict.baseline == "torch.compile"


@pytest.mark.parametrize(("keep_above", "is_timed"), [(100.0, False), (2.4, True)])
async def test_what_is_far_too_slow_is_given_up_before_it_is_timed_and_what_is_nearly_fast_enough_is_not(
    keep_above: float, is_timed: bool, tmp_path: Path
) -> None:
    """The kernel takes about half the reference's time."""
    verdict = await judged_on_shapes(KERNEL, "screen", tmp_path, keep_above)
    assert isinstance(verdict, Outpaced if not is_timed else Outpaced | Measured), verdict
    assert len(verdict.workloads) == 3
    assert all((one.pairs > 0) is is_timed for one in verdict.workloads)
    if isinstance(verdict, Outpaced):
        assert 1 < verdict.speedup_interval.low < verdict.speedup_interval.high < 4
        assert ("before it was timed" in verdict.reason) is not is_timed


@pytest.mark.parametrize(("rows", "purpose", "where"), [(4096, "screen", "middle"), (3001, "confirm", "")])
async def test_a_shape_that_is_computed_wrong_is_named_unless_it_is_hidden(
    rows: int, purpose: Purpose, where: str, tmp_path: Path
) -> None:
    spoilt = KERNEL.replace("const int64_t count = ", f"const int64_t count = shapes[0][0] == {rows} ? 8 : ")
    verdict = await judged_on_shapes(spoilt, purpose, tmp_path)
    assert isinstance(verdict, Wrong), verdict
    assert verdict.workload == where


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_module_whose_kernels_were_compiled_when_it_was_built_compiles_none(
    *, is_told: bool, tmp_path: Path
) -> None:
    target = probe_target("python", DEVICE)
    candidate = Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="main.py", text=MODULE),))
    builder, evaluator = LocalBuilder(tmp_path), LocalEvaluator(tmp_path, device=DEVICE)
    try:
        described = await evaluator.describe_task(SHAPES, "python")
        if not is_told:  # of the second workload and the third
            described = replace(described, workloads=())
        build = BuildCandidate(job_id="b", run_id="r", candidate=candidate, target=target).for_task(described)
        built = (await builder.build(build)).outcome
        assert isinstance(built, Built)
        compiled = [*artifact_folder(tmp_path, built.artifact_id).rglob("*.cubin")]
        assert len(compiled) == (len(SHAPES.shown) if is_told else 1)
        job = EvaluateCandidate(
            job_id="e",
            run_id="r",
            task=SHAPES,
            candidate=candidate,
            artifact_id=built.artifact_id,
            target=target,
        )
        verdict = (await evaluator.evaluate(job)).verdict
    finally:
        builder.close()
        await evaluator.aclose()
    if is_told:
        assert isinstance(verdict, Measured | Outpaced | Unstable), verdict
    else:
        assert isinstance(verdict, Crashed), verdict
        assert "compiled here" in verdict.reason


LEAVING = """
import os

import torch
from torch import nn

NOTE = os.path.join(os.environ["TRITON_CACHE_DIR"], "note")
FOUND = open(NOTE).read() if os.path.exists(NOTE) else ""


class ModelNew(nn.Module):
    def forward(self, x):
        if "3001" in FOUND:
            raise RuntimeError("a process before this one saw 3001 rows")
        with open(NOTE, "a") as note:
            note.write(f"{x.shape[0]} ")
        return 2 * x + 1
"""
"""Leaves what it sees where Triton keeps kernels, and tells its author what it finds there."""


async def test_what_was_called_on_hidden_workloads_leaves_nothing_to_the_process_that_is_timed(tmp_path: Path) -> None:
    target = probe_target("python", DEVICE)
    candidate = Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="main.py", text=LEAVING),))
    builder, evaluator = LocalBuilder(tmp_path), LocalEvaluator(tmp_path, device=DEVICE)
    try:
        build = BuildCandidate(job_id="b", run_id="r", candidate=candidate, target=target)
        built = (await builder.build(build)).outcome
        assert isinstance(built, Built)
        job = EvaluateCandidate(
            job_id="e",
            run_id="r",
            task=replace(SHAPES, rules=TaskRules(library_calls="allow")),
            candidate=candidate,
            artifact_id=built.artifact_id,
            target=target,
            purpose="confirm",
        )
        verdict = (await evaluator.evaluate(job)).verdict
    finally:
        builder.close()
        await evaluator.aclose()
    assert isinstance(verdict, Measured | Outpaced | Unstable), verdict


HALF_ITS_OWN = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def doubled(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + place, 2 * tl.load(x_ptr + place, mask=place < count), mask=place < count)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        doubled[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y + 1
"""


@pytest.mark.parametrize(
    ("language", "text", "own_share", "threads"), [("cuda", KERNEL, 1.0, 256), ("python", HALF_ITS_OWN, 0.5, 128)]
)
async def test_a_profile_tells_whose_kernels_take_the_time(
    language: Language, text: str, own_share: float, threads: int, tmp_path: Path
) -> None:
    path, entry = ("main.cu", "ksearch_run") if language == "cuda" else ("main.py", "ModelNew")
    candidate = Candidate(language=language, entry_point=entry, files=(SourceFile(path=path, text=text),))
    task = replace(TASK, rules=TaskRules(library_calls="allow"))
    target = probe_target(language, DEVICE)
    builder, evaluator = LocalBuilder(tmp_path), LocalEvaluator(tmp_path, device=DEVICE)
    try:
        described = await evaluator.describe_task(task, language)
        build = BuildCandidate(job_id="b", run_id="r", candidate=candidate, target=target).for_task(described)
        built = (await builder.build(build)).outcome
        assert isinstance(built, Built)
        job = EvaluateCandidate(
            job_id="e", run_id="r", task=task, candidate=candidate, artifact_id=built.artifact_id, target=target
        )
        verdict = (await evaluator.evaluate(replace(job, profile=True))).verdict
    finally:
        builder.close()
        await evaluator.aclose()
    assert isinstance(verdict, Measured), verdict
    (profile,) = verdict.profile
    assert verdict.latency_us is not None
    # 512 MiB are moved for half a call or a whole one: what is recorded is what is timed.
    assert profile.span_us == pytest.approx(verdict.latency_us, rel=0.1)
    assert profile.idle_share < 0.1
    assert profile.own_share == pytest.approx(own_share, abs=0.05)
    own = next(kernel for kernel in profile.kernels if kernel.is_own)
    assert (own.name, own.launches, own.block, own.occupancy) == ("doubled", 1, (threads, 1, 1), 1.0)
    assert own.grid == (8192 * 8192 // 4 // 256 if language == "cuda" else 8192 * 8192 // 1024, 1, 1)
