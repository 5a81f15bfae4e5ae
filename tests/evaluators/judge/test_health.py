"""A device that no longer works takes itself out of service, and comes back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

import evaluators.judge.proof
from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.hardware.vendors.nvidia.probe import ails
from evaluators.judge.proof import Health, SickDeviceError
from evaluators.local import LocalEvaluator, SeveralEvaluators
from messages.base import EvaluatorError
from messages.commands import EvaluateCandidate
from messages.events import Built
from messages.tasks import TaskRules
from messages.verdicts import Measured, Unstable
from tests.evaluators.words import RIGHT, SMALL_TASK, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio


class Probe:
    """Says what it is told to, and counts how often it is asked."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, _: str) -> str:
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluators.judge.proof, "REST_S", 0.0)


@pytest.fixture
async def job(tmp_path: Path) -> EvaluateCandidate:
    target = await anyio.to_thread.run_sync(probe_target, "cpp")
    built = (await LocalBuilder(tmp_path).build(build_job(cpp(RIGHT), target))).outcome
    assert isinstance(built, Built)
    return evaluate_job(cpp(RIGHT), built.artifact_id, target, SMALL_TASK)


@pytest.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(tmp_path, slots=1, ails=PROBE)
    yield evaluator
    await evaluator.aclose()


PROBE = Probe("")


def failing(job: EvaluateCandidate) -> EvaluateCandidate:
    """The same for a task whose judge fails: it wants more threads than any host has."""
    return replace(job, task=replace(job.task, rules=TaskRules(threads=5000)))


async def test_a_judge_that_fails_on_a_device_that_works_is_told_as_it_failed(
    job: EvaluateCandidate, evaluator: LocalEvaluator
) -> None:
    PROBE.answers = [""]
    with pytest.raises(EvaluatorError, match="core") as caught:
        await evaluator.evaluate(failing(job))
    assert not isinstance(caught.value, SickDeviceError)
    assert not evaluator.is_resting


async def test_a_sick_device_is_out_of_service_until_it_works_again(
    job: EvaluateCandidate, evaluator: LocalEvaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    PROBE.answers, PROBE.asked = ["it fell off the bus"], 0
    with pytest.raises(SickDeviceError, match="cpu is out of service: it fell off the bus") as caught:
        await evaluator.evaluate(failing(job))
    assert caught.value.permanent
    assert evaluator.is_resting
    with pytest.raises(SickDeviceError):
        await evaluator.evaluate(job)
    assert PROBE.asked == 1, "a device that rests is left alone"
    monkeypatch.setattr(evaluators.judge.proof, "REST_S", 0.0)
    PROBE.answers = [""]
    assert isinstance((await evaluator.evaluate(job)).verdict, Measured | Unstable)


@pytest.mark.long
async def test_of_several_devices_the_one_that_works_gets_the_jobs(job: EvaluateCandidate, tmp_path: Path) -> None:
    sick, well = (LocalEvaluator(tmp_path, slots=1, ails=Probe(says)) for says in ("it is sick", ""))
    several = SeveralEvaluators([sick, well])
    try:
        with pytest.raises(EvaluatorError, match="core") as caught:
            await several.evaluate(failing(job))
        assert sick.is_resting, "it was asked first"
        assert not isinstance(caught.value, SickDeviceError)
        for _ in range(2):
            assert isinstance((await several.evaluate(job)).verdict, Measured | Unstable)
    finally:
        await several.aclose()


@pytest.mark.long
async def test_with_no_device_that_works_that_is_said(job: EvaluateCandidate, tmp_path: Path) -> None:
    several = SeveralEvaluators([LocalEvaluator(tmp_path, slots=1, ails=Probe("it is sick")) for _ in range(2)])
    try:
        with anyio.fail_after(60), pytest.raises(SickDeviceError):
            await several.evaluate(failing(job))
    finally:
        await several.aclose()


@pytest.mark.usefixtures("no_rest")
async def test_a_device_that_cannot_be_asked_is_never_sick() -> None:
    health = Health("cpu", None)
    error = EvaluatorError("the judge died")
    assert await health.blame(error) is error
    await health.require()


def test_the_probe_says_what_is_missing_where_there_is_no_gpu() -> None:
    if Path("/dev/nvidia0").exists():
        assert ails("cuda:0") == ""
    else:
        assert "libcuda" in ails("cuda:0")
