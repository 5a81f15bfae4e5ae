"""A short run against a served model that fails and errs in every way keeps its promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.llm.chat import ChatModel
from tests.bad_model.play import Play, play

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


async def test_a_run_whose_model_is_bad_in_every_way_uses_its_budget_and_explains_itself(tmp_path: Path) -> None:
    told = Play(dialect="responses", rounds=12, branches=8, latency_s=0.1, evaluation_s=0.0, timeout_s=1.5)
    outcome = await play(told, tmp_path)
    assert outcome.problems == []
    assert outcome.rounds == told.rounds
    assert sum(row.made > 0 for row in outcome.rows) >= 6
    assert outcome.refused_scripts > 0
