"""The simulated siblings keep the contracts of the real ones, and their durations."""

from __future__ import annotations

import time

import anyio
import pytest

from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator, hashed_outcome, hashed_verdict
from messages.base import EvaluatorError
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import DidNotBuild, Measured, Verdict, Wrong
from tests.contracts.evaluators import BuilderContract, EvaluatorContract
from tests.evaluators.words import SMALL_TASK, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio


def outcome_of(candidate: Candidate) -> DidNotBuild | None:
    return DidNotBuild(reason="scripted") if candidate.files[0].text == "bad" else None


def verdict_of(candidate: Candidate) -> Verdict:
    return Wrong(reason="scripted") if candidate.files[0].text == "wrong" else Measured(timed=False)


@pytest.fixture
def target() -> Target:
    return Target(arch="x86_64", march="x86-64-v3", toolchain="none", device="simulated")


@pytest.fixture
def task() -> TaskSpec:
    return SMALL_TASK


@pytest.fixture
def builder() -> SimulatedBuilder:
    return SimulatedBuilder(outcome_of, wall_s=0.3)


@pytest.fixture
def evaluator() -> SimulatedEvaluator:
    return SimulatedEvaluator(verdict_of, wall_s=0.3, lease_s=1.0)


@pytest.fixture
def good() -> Candidate:
    return cpp("good")


@pytest.fixture
def bad() -> Candidate:
    return cpp("bad")


@pytest.fixture
def wrong() -> Candidate:
    return cpp("wrong")


@pytest.mark.virtual_time
class TestSimulatedBuilder(BuilderContract):
    pass


@pytest.mark.virtual_time
class TestSimulatedEvaluator(EvaluatorContract):
    pass


@pytest.mark.virtual_time
async def test_waiting_goes_on_at_once_but_the_lease_is_one_after_the_other(target: Target, good: Candidate) -> None:
    evaluator = SimulatedEvaluator(verdict_of, wall_s=0.5, lease_s=1.0)
    begun = anyio.current_time()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(evaluator.evaluate, evaluate_job(good, "a", target))
    assert anyio.current_time() - begun == pytest.approx(3.5)


async def test_cpu_time_is_burnt_not_waited_for(target: Target, good: Candidate) -> None:
    before = time.process_time()
    report = await SimulatedBuilder(cpu_s=0.05).build(build_job(good, target))
    assert report.cpu_s == 0.05
    assert time.process_time() - before >= 0.05


@pytest.mark.virtual_time
async def test_a_closed_evaluator_takes_no_work(target: Target, good: Candidate) -> None:
    evaluator = SimulatedEvaluator(verdict_of)
    await evaluator.aclose()
    with pytest.raises(EvaluatorError, match="closed"):
        await evaluator.evaluate(evaluate_job(good, "a", target))


def test_the_script_of_simulated_devices_gives_a_candidate_one_fate_and_many_candidates_all() -> None:
    candidates = [cpp(f"candidate {number}") for number in range(1000)]
    refused = [candidate for candidate in candidates if hashed_outcome(candidate) is not None]
    verdicts = [hashed_verdict(candidate) for candidate in candidates if hashed_outcome(candidate) is None]
    assert verdicts == [hashed_verdict(candidate) for candidate in candidates if hashed_outcome(candidate) is None]
    wrong = [verdict for verdict in verdicts if isinstance(verdict, Wrong)]
    speedups = [verdict.speedup_vs_reference or 0 for verdict in verdicts if isinstance(verdict, Measured)]
    assert 40 < len(refused) < 140
    assert 70 < len(wrong) < 180
    assert min(speedups) >= 0.5
    assert 3.2 < max(speedups) <= 4.0
