"""What a journal comes to when it is replayed, and what is said where that is something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec.structs import replace

from actors.bus.journal import read_journal
from actors.coder.prompts import request_for
from actors.llm.base import Request
from actors.llm.offline import OfflineModel
from actors.llm.replay import ReplayModel
from actors.planner import actor
from actors.planner.answers import read_proposal
from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, state_hash
from actors.planner.prompts import plan_request
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.cli.session import has_missed
from ksearch_async.runs import replay
from ksearch_async.runs.folder import read_run
from ksearch_async.runs.replay import read_recording, replay_run
from ksearch_async.runs.resume import Session, StopSwitch, Tools, lead_session
from ksearch_async.settings.models import rules_answer_misses
from ksearch_async.settings.run_config import ModelSettings
from messages.base import ConfigError
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten, EditsProposed, Event, RunResumed
from messages.facts import Decided, Fact, IncumbentChanged, PlanRequested
from messages.settings import Budget, SearchSettings
from tests.actors.llm.offline.prompts import description
from tests.ksearch_async.runs.test_launch import new_session
from tests.ksearch_async.test_over_http import verdict_of

pytestmark = pytest.mark.anyio

ROUNDS = 100
SEED = 3
WANTED = "# What is wanted"


def session(folder: Path, *, rounds: int = ROUNDS, branches: int = 4) -> Session:
    folder.mkdir()
    settings = SearchSettings(branches=branches, stagnation_window=3, budget=Budget(max_rounds=rounds, max_calls=400))
    new = new_session(folder, settings)
    started = msgspec.structs.replace(new.started, description=description())
    return msgspec.structs.replace(new, started=started, opening=started)


async def led(search: Session, model: OfflineModel | ReplayModel, *, stop_after: int = 0) -> list[Record]:
    """Lead a search to its end, or have it stop after some evaluations; return its records."""
    stop, evaluations = StopSwitch(), 0

    def tell(record: Record) -> None:
        nonlocal evaluations
        search.chronicle.fold(record)
        evaluations += isinstance(record.body, CandidateEvaluated)
        if stop_after and evaluations == stop_after:
            stop.ask()

    tools = Tools(model=model, builder=SimulatedBuilder(), evaluator=SimulatedEvaluator(verdict_of))
    with anyio.fail_after(90):
        await lead_session(search, tools, tell=tell, stop=stop)
    return list(read_journal(search.folder.journal))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """The records of a run of 100 rounds whose models make mistakes."""
    search = session(tmp_path_factory.mktemp("recorded") / "runs")
    return anyio.run(led, search, OfflineModel(seed=SEED, mistakes=0.2))


def other_rules(*asked: Any, **options: Any) -> Request:
    """Ask as the planner does, by other rules."""
    return replace(plan_request(*asked, **options), system="You plan.")


def questions(records: list[Record]) -> int:
    return sum(isinstance(record.body, CandidateWritten | EditsProposed) for record in records)


def facts_of(records: list[Record], kind: type[Fact]) -> list[Fact]:
    decided = [record.body for record in records if isinstance(record.body, Decided)]
    return [fact for body in decided for fact in body.facts if isinstance(fact, kind)]


def test_a_run_of_100_rounds_comes_out_the_same_bit_for_bit(recorded: list[Record]) -> None:
    replayed = replay_run(recorded)
    assert replayed.is_same
    assert (replayed.rounds, replayed.hits, replayed.misses) == (ROUNDS, questions(recorded), ())
    assert replayed.hits > ROUNDS
    assert replayed.hashes > 50
    assert replayed.state_hash == state_hash(folded(recorded))


def folded(records: list[Record]) -> SearchState:
    state = SearchState()
    for record in records:
        for fact in record.body.facts if isinstance(record.body, Decided) else ():
            state = evolve(state, fact)
    return state


def test_a_changed_line_of_a_template_is_a_miss_of_exactly_the_prompts_that_hold_it(
    recorded: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed = [record.body for record in recorded if isinstance(record.body, EditsProposed)]
    wanted = proposed[0].prompt.rpartition(WANTED)[2].splitlines()
    line = next(line for line in wanted if line and any(line not in body.prompt for body in proposed))

    def shorter(*asked: Any, **options: Any) -> Request:
        question = plan_request(*asked, **options)
        return replace(question, parts=tuple(part.replace(line, f"{line[:20]} …") for part in question.parts))

    monkeypatch.setattr(replay, "plan_request", shorter)
    replayed = replay_run(recorded)
    holders = [body for body in proposed if line in body.prompt]
    assert 0 < len(holders) < len(proposed)
    assert [miss.job_id for miss in replayed.misses] == [holder.job_id for holder in holders]
    assert all(miss.changes.parts == (WANTED.lstrip("# "),) for miss in replayed.misses)
    assert replayed.misses[0].changes.recorded in line
    assert replayed.misses[0].changes.asked.endswith(" …")
    assert replayed.hits == questions(recorded) - len(holders)
    assert replayed.decided_otherwise is None


def test_changed_rules_are_a_miss_of_all_prompts_of_their_role(
    recorded: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "request_for", lambda job: replace(request_for(job), system="You write."))
    replayed = replay_run(recorded)
    written = [record.body.job_id for record in recorded if isinstance(record.body, CandidateWritten)]
    assert sorted(miss.job_id for miss in replayed.misses) == sorted(written)
    assert {miss.changes.parts for miss in replayed.misses} == {("rules",)}


def test_changed_rules_of_the_planner_are_seen_though_journals_hold_only_their_digest(
    recorded: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "plan_request", other_rules)
    replayed = replay_run(recorded)
    asked = [record.body for record in recorded if isinstance(record.body, EditsProposed)]
    assert len(replayed.misses) == len(asked)
    assert {(miss.role, miss.changes.parts) for miss in replayed.misses} == {("planner", ("rules",))}


def test_an_answer_that_is_read_otherwise_is_named(recorded: list[Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        replay,
        "read_proposal",
        lambda *asked: msgspec.structs.replace(read_proposal(*asked), script=None, complaint="no"),
    )
    replayed = replay_run(recorded)
    assert replayed.read_otherwise[0].what.endswith("now complaint 'no'")
    assert replayed.decided_otherwise is not None


def test_the_first_decision_that_differs_is_named_and_the_recorded_ones_are_followed(
    recorded: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    def blind(state: SearchState, event: Event) -> tuple[Fact, ...]:
        return tuple(fact for fact in decide(state, event) if not isinstance(fact, IncumbentChanged))

    monkeypatch.setattr(replay, "decide", blind)
    replayed = replay_run(recorded)
    difference = replayed.decided_otherwise
    assert difference is not None
    first = next(
        record.seq
        for record in recorded
        if isinstance(record.body, Decided) and any(isinstance(fact, IncumbentChanged) for fact in record.body.facts)
    )
    assert difference.seq == first
    assert replayed.hash_differs is None
    assert replayed.rounds == ROUNDS


def test_a_state_with_another_hash_is_found(recorded: list[Record]) -> None:
    records = [
        msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, state_hash="0" * 32))
        if isinstance(record.body, Decided) and record.body.state_hash
        else record
        for record in recorded
    ]
    difference = replay_run(records).hash_differs
    assert difference is not None
    assert difference.what.startswith(f"the state's hash was {'0' * 32}, now ")


async def test_a_run_that_was_stopped_and_went_on_comes_out_the_same(tmp_path: Path) -> None:
    search = session(tmp_path / "runs", rounds=24)
    await led(search, OfflineModel(seed=SEED, latency_s=0.02), stop_after=9)
    resumed = msgspec.structs.replace(
        search, opening=RunResumed(run_id=search.started.run_id), chronicle=read_run(search.folder)
    )
    records = await led(resumed, OfflineModel(seed=SEED, mistakes=0.2))
    replayed = replay_run(records)
    assert any(isinstance(record.body, RunResumed) for record in records)
    assert replayed.rounds == 24
    assert replayed.is_same, replayed


async def test_a_recorded_run_answers_and_the_same_tree_grows(tmp_path: Path) -> None:
    first = session(tmp_path / "first", rounds=20, branches=1)
    recorded = await led(first, OfflineModel(seed=SEED, mistakes=0.2))
    model = ReplayModel(read_recording(first.folder.run_id, first.folder.path.parent))
    again = await led(session(tmp_path / "again", rounds=20, branches=1), model)
    assert (model.hits, model.misses) == (questions(recorded), 0)
    assert state_hash(folded(again)) == state_hash(folded(recorded))


async def test_a_question_that_was_not_recorded_ends_the_run_with_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = session(tmp_path / "first", rounds=8, branches=1)
    await led(first, OfflineModel(seed=SEED))
    monkeypatch.setattr(actor, "plan_request", other_rules)
    model = ReplayModel(read_recording(str(first.folder.path), tmp_path))
    again = session(tmp_path / "again", rounds=8, branches=1)
    await led(again, model)
    finished = again.chronicle.finished
    assert finished is not None
    assert finished.stopped_by == "infrastructure"
    assert "was not recorded: changed against" in finished.detail
    assert ": rules" in finished.detail
    assert has_missed(again.chronicle)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ModelSettings(replay="r", replay_misses="ask"), True),
        (ModelSettings(replay="r", replay_misses="ask", name="m", base_url="http://h"), False),
        (ModelSettings(replay="r"), False),
        (ModelSettings(), False),
    ],
)
def test_rules_that_answer_what_a_recorded_run_was_not_asked_are_told(settings: ModelSettings, expected: bool) -> None:
    assert rules_answer_misses(settings, {}) is expected


def test_a_run_that_is_not_there_cannot_answer(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run 'gone'"):
        read_recording("gone", tmp_path)


def test_questions_that_nobody_answered_are_no_misses(recorded: list[Record]) -> None:
    last = max(at for at, record in enumerate(recorded) if isinstance(record.body, EditsProposed))
    replayed = replay_run(recorded[:last])
    assert replayed.misses == ()
    assert replayed.unanswered >= 1
    assert len(facts_of(recorded[:last], PlanRequested)) >= 1
