"""A run on Modal's device builds and judges at the far end of a line, here one that stays in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evaluators.remote import modal_line
from evaluators.remote.far import Far
from evaluators.simulated import SIMULATED, SimulatedBuilder, SimulatedEvaluator
from ksearch_async.fleet.workers import check_baseline, find_target, open_workers, slots_of
from ksearch_async.settings.run_config import WorkerSettings
from messages.base import ConfigError, Language
from messages.events import Built
from messages.tasks import TaskDescription, TaskSpec
from messages.verdicts import Measured
from tests.evaluators.words import SMALL_TASK, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio


class Describing(SimulatedEvaluator):
    """A simulated evaluator that refuses every task by its name."""

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        raise ConfigError(f"{task.name} in {language} was looked at far away")


class NearbyLine:
    """A line of the same interface as Modal's."""

    def __init__(self) -> None:
        evaluator = Describing(lambda _candidate: Measured(timed=False))
        self._far = Far(SimulatedBuilder(), evaluator, lambda _language: SIMULATED)

    async def call(self, request: bytes) -> bytes:
        return await self._far.answer(request)

    async def aclose(self) -> None:
        """Nothing is held."""


@pytest.fixture(name="opened")
def nearby(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have lines lead here; return the GPUs that were asked for, with a mark when one is let go."""
    opened: list[str] = []

    @asynccontextmanager
    async def open_nearby(gpu: str) -> AsyncIterator[NearbyLine]:
        opened.append(gpu)
        yield NearbyLine()
        opened.append("let go")

    monkeypatch.setattr(modal_line, "open_modal", open_nearby)
    return opened


async def test_the_far_side_says_what_a_run_is_for(opened: list[str]) -> None:
    assert await find_target(SMALL_TASK, "cpp", "modal:H200") == SIMULATED
    assert opened == ["H200", "let go"]


async def test_a_run_builds_judges_and_describes_at_the_far_side(opened: list[str], tmp_path: Path) -> None:
    settings = WorkerSettings(device="modal")
    async with open_workers(SMALL_TASK, "cpp", tmp_path, settings) as workers:
        built = (await workers.builder.build(build_job(cpp("good"), SIMULATED))).outcome
        assert isinstance(built, Built)
        report = await workers.evaluator.evaluate(evaluate_job(cpp("good"), built.artifact_id, SIMULATED))
        assert isinstance(report.verdict, Measured)
        with pytest.raises(ConfigError, match="looked at far away"):
            await workers.describe()
        assert opened == ["H100"]
    assert opened == ["H100", "let go"]
    assert slots_of(settings) == 1


async def test_a_second_baseline_is_for_gpus_of_this_host() -> None:
    with pytest.raises(ConfigError, match="for GPUs of this host"):
        check_baseline(WorkerSettings(device="modal", baseline="torch.compile"))
