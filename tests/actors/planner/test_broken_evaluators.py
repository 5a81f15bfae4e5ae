"""A search among evaluators that break: what they say of themselves is never held against a candidate."""

from __future__ import annotations

from collections import Counter

import pytest

from actors.worker.work import MAX_ATTEMPTS
from messages.base import ConfigError, EvaluatorError
from messages.events import JobLost
from messages.facts import AttemptFinished
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate
from messages.verdicts import Verdict
from tests.actors.planner.rig import Rig, landscape, scripted

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

SETTINGS = SearchSettings(branches=2, budget=Budget(max_rounds=12))
CURSED = 5
"""Which candidate evaluators break on, as often as a job is tried."""


@pytest.mark.parametrize("kind", [EvaluatorError, ConfigError])
async def test_an_evaluator_that_breaks_now_and_then_costs_no_attempt(kind: type[Exception]) -> None:
    tries = Counter[str]()

    def judge(candidate: Candidate) -> Verdict:
        tries[candidate.candidate_id] += 1
        if tries[candidate.candidate_id] < 3:
            raise kind("the judge died of signal 9")
        return landscape(candidate)

    rig = Rig(SETTINGS)
    planner, coder = scripted()
    finished = await rig.search(planner, coder_model=coder, judge=judge, evaluation_s=1.0)
    assert (finished.stopped_by, finished.rounds) == ("rounds", 12)
    assert not [body for _, body in rig.bodies if isinstance(body, JobLost)]
    assert set(tries.values()) <= {3, 4}


async def test_a_job_that_breaks_every_evaluator_is_lost_and_the_search_goes_on() -> None:
    tries = Counter[str]()

    def judge(candidate: Candidate) -> Verdict:
        tries[candidate.candidate_id] += 1
        if list(tries).index(candidate.candidate_id) == CURSED and tries[candidate.candidate_id] <= MAX_ATTEMPTS:
            raise EvaluatorError("the judge died of signal 9")
        return landscape(candidate)

    rig = Rig(SETTINGS)
    planner, coder = scripted()
    finished = await rig.search(planner, coder_model=coder, judge=judge, evaluation_s=1.0)
    assert (finished.stopped_by, finished.rounds) == ("rounds", 12)
    lost = [body for _, body in rig.bodies if isinstance(body, JobLost)]
    assert [(body.kind, body.permanent) for body in lost] == [("evaluate", False)]
    assert all(fact.fate != "crashed" for fact in rig.facts() if isinstance(fact, AttemptFinished))


async def test_an_evaluator_that_can_never_work_ends_a_run_of_one_process_with_its_words() -> None:
    def judge(candidate: Candidate) -> Verdict:
        raise EvaluatorError(f"no compiler for {candidate.language}", permanent=True)

    rig = Rig(SETTINGS)
    planner, coder = scripted()
    finished = await rig.search(planner, coder_model=coder, judge=judge)
    assert finished.rounds == 0
    assert {body.error for _, body in rig.bodies if isinstance(body, JobLost)} == {"no compiler for cpp"}
