"""The collection for GPUs, through the real builder and the real evaluator on the first GPU of this host.

After each candidate: its verdict is the one of its header, no process and no file is left, and no memory of the device.
After those that break their context, or leave kernels running, an honest candidate is measured as before.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from _pytest.mark import ParameterSet
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import GPU_LIMITS
from evaluators.local import LocalEvaluator
from messages.base import Language
from messages.events import Built
from messages.tasks import Target
from messages.verdicts import Measured, Outpaced, Unstable, Verdict
from tests.attacks.cases import Case, Places, came_true, load_cases
from tests.attacks.places import leftovers
from tests.evaluators.words import build_job, evaluate_job
from tests.gpu.memory import used_mib

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU"),
]

DEVICE = "cuda:0"
PATIENCE_S = 110.0
LEFT_MIB = 64
"""Device memory that may differ between before and after: the judge's own allocator takes and gives."""
CANDIDATES = Path(__file__).with_name("candidates")
CASES = [case for kind in ("cheats", "faulty", "honest") for case in load_cases(kind, CANDIDATES)]


def as_parameter(case: Case) -> ParameterSet:
    marks = [pytest.mark.xfail(strict=True, reason=case.header["open"])] if "open" in case.header else []
    return pytest.param(case, marks=marks, id=f"{case.kind}-{case.name}")


@functools.cache
def target_for(language: Language) -> Target:
    return probe_target(language, DEVICE)


@pytest.fixture(scope="module")
async def evaluator(places: Places) -> AsyncIterator[LocalEvaluator]:
    limits = replace(GPU_LIMITS, load_s=30.0, first_call_s=12.0)
    evaluator = LocalEvaluator(Path(places["STORE"]), device=DEVICE, slots=1, limits=limits)
    yield evaluator
    await evaluator.aclose()


async def judge(case: Case, places: Places, builder: LocalBuilder, evaluator: LocalEvaluator) -> Verdict:
    candidate, target = case.candidate(places), target_for(case.language)
    tensors = (await evaluator.describe_task(case.task, case.language)).tensors
    built = (await builder.build(replace(build_job(candidate, target), tensors=tensors))).outcome
    if not isinstance(built, Built):
        return built
    job = evaluate_job(candidate, built.artifact_id, target, case.task)
    return (await evaluator.evaluate(job)).verdict


def honest_case(language: Language) -> Case:
    name = {"cuda": "cuda-workspace_kept", "triton": "triton-plain", "python": "python-plain"}[language]
    return next(case for case in CASES if case.name == name)


async def device_memory_once_settled(most_mib: int) -> int:
    """Return what is taken once it is at most `most_mib`, or after 100 looks: a process takes a moment to end."""
    for _ in range(100):
        used = await anyio.to_thread.run_sync(used_mib)
        if used <= most_mib:
            break
        await anyio.sleep(0.1)
    return used


@pytest.fixture(scope="module")
def settled() -> dict[Language, int]:
    """Per language, the memory that is taken once its judges are at work and no candidate is."""
    return {}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", [as_parameter(case) for case in sorted(CASES, key=lambda case: case.language)])
async def test_a_candidate_gets_the_verdict_of_its_header_and_leaves_nothing(
    case: Case, places: Places, builder: LocalBuilder, evaluator: LocalEvaluator, settled: dict[Language, int]
) -> None:
    honest = honest_case(case.language)
    if case.language not in settled:
        settled.clear()  # judges of the other language make way
        assert isinstance(await judge(honest, places, builder, evaluator), Measured | Unstable)
        settled[case.language] = await anyio.to_thread.run_sync(used_mib)
    try:
        with anyio.fail_after(PATIENCE_S):
            verdict = await judge(case, places, builder, evaluator)
    finally:
        left = leftovers(places)
    assert came_true(case, verdict) == ""
    assert left == []
    assert places["NONCE"] not in str(verdict), "a verdict quotes what only the user may read"
    most = settled[case.language] + LEFT_MIB
    used = await device_memory_once_settled(most)
    if used > most:  # the judge loads a library once (cuDNN for its reference); what candidates leave adds up
        settled[case.language] = used
        with anyio.fail_after(PATIENCE_S):
            await judge(case, places, builder, evaluator)
        assert await device_memory_once_settled(used + LEFT_MIB) <= used + LEFT_MIB
    if case.kind != "honest":
        again = await judge(honest, places, builder, evaluator)
        assert isinstance(again, Measured | Unstable | Outpaced), again
