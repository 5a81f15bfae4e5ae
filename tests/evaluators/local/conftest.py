"""A local evaluator for the tests of a module: its judges are kept between them, as in a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from messages.tasks import Target
from tests.evaluators.judging import Judging
from tests.evaluators.words import cpp

LIMITS = Limits(first_call_s=1.0, call_s=0.5, call_slowdown=1.0, memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """One event loop for the module."""
    return ("asyncio", {})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("cpp")


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
    return Judging(builder, evaluator, target, cpp)
