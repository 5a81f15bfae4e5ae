"""One builder and one evaluator for the whole collection, and the places that candidates try to reach."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.judge.protocol import Limits
from evaluators.local import LocalEvaluator
from tests.attacks.cases import Places
from tests.attacks.places import lay_places

LIMITS = Limits(load_s=3.0, first_call_s=2.0, call_s=1.0, call_slowdown=1.0, evaluation_s=20.0, memory_bytes=1 << 30)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, object]]:
    """One event loop for the module: judges are kept between tests, as in a run."""
    return ("asyncio", {})


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """What candidates look for; the environment holds a key, and temporary files lie in a folder of this test's."""
    folder = tmp_path_factory.mktemp("judges")
    with pytest.MonkeyPatch.context() as patch, lay_places(folder) as places:
        patch.setenv("KSEARCH_ATTACK_KEY", places["KEY"])
        patch.setattr(tempfile, "tempdir", str(folder))
        yield places
        assert not list(Path(places["STORE"]).glob(".building-*"))


@pytest.fixture(scope="module")
def builder(places: Places) -> Iterator[LocalBuilder]:
    builder = LocalBuilder(Path(places["STORE"]), limit_s=20.0)
    yield builder
    builder.close()


@pytest.fixture(scope="module")
async def evaluator(places: Places) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(Path(places["STORE"]), slots=1, limits=LIMITS)
    yield evaluator
    await evaluator.aclose()
