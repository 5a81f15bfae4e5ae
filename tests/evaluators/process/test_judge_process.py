"""A judge loads its task, or fails to, while it holds the lease that it is given, and asks for nothing before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest
from msgspec.structs import replace

from evaluators.judge.protocol import Artifact, Limits, Open
from evaluators.local import LocalEvaluator
from evaluators.process.guarded import WarmProcess
from evaluators.process.judge import start_judge, warm_judges
from messages.base import ConfigError
from messages.tasks import TaskSpec
from tests.evaluators.words import SMALL_TASK

pytestmark = pytest.mark.anyio

UNUSABLE = replace(SMALL_TASK, text="class Model:\n")


class Lease:
    """Says what became of it."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.told: list[str] = []
        self._refusal = refusal

    async def __aenter__(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        self.told.append("taken")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.told.append("given back" if kind is None else f"given back after {kind.__name__}")


def opening(task: TaskSpec) -> Open:
    return Open(task=task, language="cpp", limits=Limits(), work="check", device="cpu", baseline="")


@pytest.fixture
def warm() -> Iterator[WarmProcess]:
    process = warm_judges()
    yield process
    process.close()


async def test_the_lease_is_held_while_a_judge_loads_and_no_longer(warm: WarmProcess) -> None:
    lease = Lease()
    judge = await start_judge(opening(SMALL_TASK), warm, lease)
    assert lease.told == ["taken", "given back"]
    await judge.end()


async def test_a_task_that_cannot_be_loaded_fails_under_the_lease(warm: WarmProcess) -> None:
    lease = Lease()
    with pytest.raises(ConfigError):
        await start_judge(opening(UNUSABLE), warm, lease)
    assert lease.told == ["taken", "given back after ConfigError"]


async def test_a_judge_whose_lease_is_refused_loads_nothing(warm: WarmProcess) -> None:
    with pytest.raises(LookupError, match="not today"):
        await start_judge(opening(UNUSABLE), warm, Lease(LookupError("not today")))


async def test_a_judge_that_fails_at_a_profile_takes_no_verdict_along_and_is_not_sound(warm: WarmProcess) -> None:
    judge = await start_judge(opening(SMALL_TASK), warm)
    try:
        assert judge.is_sound
        # One of a CPU is not made for it, and ends.
        found = await judge.profile(Artifact(product="kernel.so", entry_point="ksearch_run"))
    finally:
        await judge.end()
    assert found.workloads == ()
    assert "the judge died" in found.error
    assert not judge.is_sound


async def test_a_judge_that_is_not_sound_is_not_lent_again(tmp_path: Path) -> None:
    evaluator = LocalEvaluator(tmp_path)
    try:
        pool = evaluator._pools["check"]
        async with pool.lend(SMALL_TASK, "cpp") as first:
            pass
        async with pool.lend(SMALL_TASK, "cpp") as second:
            assert second is first
            second.is_sound = False
        async with pool.lend(SMALL_TASK, "cpp") as third:
            assert third is not first
    finally:
        await evaluator.aclose()
