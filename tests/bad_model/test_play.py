"""A short run against a served model that fails and errs in every way keeps its promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.llm.chat import ChatModel
from actors.llm.offline.mistakes import HARMLESS
from tests.bad_model.play import Play, play

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


@pytest.mark.long
async def test_a_run_whose_model_is_bad_in_every_way_uses_its_budget_and_explains_itself(tmp_path: Path) -> None:
    told = Play(dialect="responses", rounds=12, branches=8, latency_s=0.1, evaluation_s=0.0, timeout_s=1.5)
    outcome = await play(told, tmp_path)
    assert outcome.problems == []
    assert outcome.rounds == told.rounds
    assert sum(row.made > 0 for row in outcome.rows) >= 6
    assert outcome.refused_scripts > 0


async def test_a_model_that_errs_in_form_only_loses_next_to_no_question_to_it(tmp_path: Path) -> None:
    told = Play(
        rounds=24, branches=4, rate=0.5, latency_s=0.01, evaluation_s=0.0, mistakes=HARMLESS, faults=False,
        most_lost_to_form=0.02,
    )  # fmt: skip
    outcome = await play(told, tmp_path)
    assert outcome.problems == []
    assert [row.kind for row in outcome.rows if row.journalled] == list(HARMLESS)
