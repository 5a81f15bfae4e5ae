"""The planner among real actors on a virtual clock: what happens when answers take their time."""

from __future__ import annotations

import itertools
from collections import Counter

import anyio
import pytest

from actors.bus.stream import MemoryStore
from actors.llm.base import Request, ScriptedModel
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, state_hash
from messages.base import ModelError
from messages.codec import encode
from messages.events import ContinueRequested, EditsProposed, JobLost, PauseRequested, RunResumed
from messages.facts import (
    AttemptFinished,
    BranchStarted,
    Decided,
    EditsApplied,
    EditsRefused,
    EvaluationRequested,
    NodeInserted,
    PlanAbandoned,
    PlanRequested,
    RunContinued,
    RunPaused,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings
from tests.actors.planner.rig import Rig, coder_answers, planner_answers, scripted

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


def settings(branches: int = 4, rounds: int = 40, **other: int) -> SearchSettings:
    return SearchSettings(branches=branches, budget=Budget(max_rounds=rounds), **other)  # type: ignore[arg-type]


async def test_a_run_uses_its_budget_and_its_stream_folds_to_the_same_state() -> None:
    rig = Rig(settings())
    planner, coder = scripted()
    finished = await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    assert (finished.stopped_by, finished.rounds) == ("rounds", 40)
    state = rig.folded().state
    assert state.finished
    assert sum(1 for fact in rig.facts() if isinstance(fact, AttemptFinished) and fact.round) == 40


async def test_hashes_in_the_stream_are_those_of_the_folded_prefix() -> None:
    rig = Rig(settings())
    planner, coder = scripted()
    await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    state, hashes = SearchState(), 0
    for _, body in rig.bodies:
        if isinstance(body, Decided):
            before = state.facts
            for fact in body.facts:
                state = evolve(state, fact)
            assert (body.state_hash is not None) == (state.facts // 10 > before // 10)
            if body.state_hash is not None:
                hashes += 1
                assert body.state_hash == state_hash(state)
    assert hashes > 20


async def test_an_update_tells_of_all_branches_that_ended_while_the_planner_thought() -> None:
    rig = Rig(settings(branches=4, rounds=100, stagnation_window=2))
    planner, coder = scripted(news=8, planner_s=6.0)
    await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    calls = [fact for fact in rig.facts() if isinstance(fact, PlanRequested)]
    assert max(len(call.branch_ids) for call in calls) >= 2
    applied = {fact.job_id for fact in rig.facts() if isinstance(fact, EditsApplied)}
    assert any(len(call.branch_ids) >= 2 and call.job_id in applied for call in calls)


async def test_the_search_goes_on_while_the_planner_thinks() -> None:
    rig = Rig(settings(branches=2, rounds=30))
    planner, coder = scripted(news=6, planner_s=50.0)
    await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    asked: set[str] = set()
    rounds_during_calls = 0
    for fact in rig.facts():
        if isinstance(fact, PlanRequested):
            asked.add(fact.job_id)
        elif isinstance(fact, EditsApplied | EditsRefused | PlanAbandoned):
            asked.discard(fact.job_id)
        elif isinstance(fact, AttemptFinished) and asked:
            rounds_during_calls += 1
    assert rounds_during_calls >= 10


async def test_a_refused_script_is_repaired_and_takes_effect() -> None:
    calls = itertools.count()

    def answer(_: object) -> str:
        number = next(calls)
        parent = "n99" if number == 0 else "n0"
        insert = f'"parent": "{parent}", "title": "t{number}", "description": "", "difficulty": 1, "priority": 0.5'
        return f'{{"edits": [{{"op": "insert", {insert}}}]}}'

    rig = Rig(settings(rounds=5))
    await rig.search(ScriptedModel(answer), coder_model=ScriptedModel(coder_answers()))
    refused = next(fact for fact in rig.facts() if isinstance(fact, EditsRefused))
    assert "n99" in refused.refusals[0].reason
    again = next(fact for fact in rig.facts() if isinstance(fact, PlanRequested) and fact.tries == 1)
    applied = next(fact for fact in rig.facts() if isinstance(fact, EditsApplied))
    assert applied.job_id == again.job_id
    assert not applied.refusals


async def test_after_the_last_refusal_a_script_is_applied_in_part() -> None:
    def stubborn(_: object) -> str:
        edit = '"title": "%s", "description": "", "difficulty": 1, "priority": 0.5}'
        return (
            '{"edits": [{"op": "insert", "parent": "n0", '
            + edit % "good"
            + ', {"op": "insert", "parent": "n99", '
            + edit % "bad"
            + "]}"
        )

    rig = Rig(settings(rounds=3))
    await rig.search(ScriptedModel(stubborn), coder_model=ScriptedModel(coder_answers()))
    applied = next(fact for fact in rig.facts() if isinstance(fact, EditsApplied))
    assert [change.title for change in applied.changes if isinstance(change, NodeInserted)] == ["good"]
    assert [refusal.index for refusal in applied.refusals] == [1]


async def test_a_frontier_that_runs_dry_is_refilled() -> None:
    rig = Rig(settings(branches=2, rounds=40, stagnation_window=1))
    planner, coder = scripted(news=1, planner_s=20.0)
    finished = await rig.search(planner, coder_model=coder, evaluation_s=0.5)
    assert finished.stopped_by == "rounds"
    open_nodes, was_dry, refilled = 0, False, False
    for fact in rig.facts():
        match fact:
            case EditsApplied():
                grown = sum(isinstance(change, NodeInserted) for change in fact.changes)
                refilled = refilled or (was_dry and grown > 0)
                open_nodes += grown
            case NodeInserted():
                open_nodes += 1
            case BranchStarted(attempt_limit=None):
                open_nodes -= 1
                was_dry = was_dry or open_nodes <= 0
            case _:
                pass
    assert was_dry
    assert refilled


@pytest.mark.long
async def test_with_64_branches_and_a_slow_planner_nine_scripts_in_ten_take_effect() -> None:
    rig = Rig(SearchSettings(branches=64, max_new_nodes=64, stagnation_window=5, budget=Budget(max_rounds=2400)))
    planner, coder = scripted(news=48, planner_s=60.0, coder_s=8.0)
    finished = await rig.search(planner, coder_model=coder, evaluation_s=2.0)
    assert finished.stopped_by == "rounds"
    applied = [fact for fact in rig.facts() if isinstance(fact, EditsApplied)]
    refused = [fact for fact in rig.facts() if isinstance(fact, EditsRefused | PlanAbandoned)]
    whole = [fact for fact in applied if not fact.refusals]
    assert len(applied) + len(refused) >= 5
    assert len(whole) >= 0.9 * (len(applied) + len(refused))
    assert max(len(fact.branch_ids) for fact in rig.facts() if isinstance(fact, PlanRequested)) >= 2


async def test_a_slower_candidate_closes_its_node_too() -> None:
    rig = Rig(settings(rounds=60))
    planner, coder = scripted()
    await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    state = rig.folded().state
    assert state.incumbent is not None
    slower = [
        node
        for node in state.nodes.values()
        if node.best is not None and node.best.credit is not None and node.best.credit < state.incumbent.credit
    ]
    assert slower
    assert all(node.state in ("closed", "in_flight") for node in slower)


async def test_a_run_cut_off_anywhere_is_resumed_and_pays_for_nothing_twice() -> None:
    whole = Rig(settings(rounds=12))
    planner, coder = scripted()
    await whole.search(planner, coder_model=coder, evaluation_s=1.0)
    for cut in range(2, len(whole.bodies), 7):
        store = MemoryStore()
        rig = Rig(settings(rounds=12), store=store)
        await rig.bus.open_stream("rig")
        last = 0
        for _, body in whole.bodies[:cut]:
            if isinstance(body, Decided):
                last = await rig.bus.publish(
                    "rig", encode(body), msg_id=f"rig.d{body.cause}", expected_last_decision=last
                )
            else:
                await rig.bus.publish("rig", encode(body), msg_id=msg_id_of(body))
        await rig.bus.publish("rig", encode(RunResumed(run_id="rig")), msg_id=f"rig.resumed.{cut}")
        planner, coder = scripted()
        finished = await rig.search(planner, coder_model=coder, evaluation_s=1.0)
        assert finished.stopped_by == "rounds", cut
        assert rig.folded().state.rounds == 12
        answered = [body.job_id for _, body in rig.bodies if hasattr(body, "job_id")]
        assert len(answered) == len(set(answered)), "an answer was paid for twice"
        evaluated = [fact.candidate_id for fact in rig.facts() if isinstance(fact, EvaluationRequested)]
        assert len(evaluated) == len(set(evaluated))


def msg_id_of(body: object) -> str:
    job_id = getattr(body, "job_id", None)
    return f"{job_id}.r" if job_id else "rig.started"


async def test_a_planners_question_that_fails_is_asked_again_under_its_id_once_something_was_answered() -> None:
    answer, asked = planner_answers(news=4), Counter[str]()

    def answers(request: Request) -> str | Exception:
        asked[request.request_id] += 1
        is_first = len(asked) == 1
        return answer(request) if is_first or asked[request.request_id] == 4 else ModelError("overloaded")

    rig = Rig(settings(rounds=80))
    await rig.search(ScriptedModel(answers), coder_model=scripted()[1], evaluation_s=1.0)
    assert not [body for _, body in rig.bodies if isinstance(body, JobLost)]
    first, *later = [asked[body.job_id] for _, body in rig.bodies if isinstance(body, EditsProposed)]
    assert (first, set(later)) == (1, {4})


async def test_a_planners_first_question_that_fails_is_lost_at_once_and_asked_anew() -> None:
    answer, asked = planner_answers(news=4), Counter[str]()

    def answers(request: Request) -> str | Exception:
        asked[request.request_id] += 1
        return answer(request) if len(asked) > 2 else ModelError("overloaded")

    rig = Rig(settings())
    finished = await rig.search(ScriptedModel(answers), coder_model=scripted()[1], evaluation_s=1.0)
    assert [body.error for _, body in rig.bodies if isinstance(body, JobLost)] == ["overloaded"] * 2
    assert set(asked.values()) == {1}
    assert finished.stopped_by == "rounds"


async def test_a_paused_run_rests_without_its_clock_and_goes_on_when_told() -> None:
    rig = Rig(SearchSettings(branches=2, budget=Budget(max_rounds=20, wall_clock_s=300.0)))
    planner, coder = scripted(coder_s=2.0)

    async def order(after_s: float, event: PauseRequested | ContinueRequested) -> None:
        await anyio.sleep(after_s)
        await rig.bus.publish(rig.started.run_id, encode(event), msg_id=f"order-{after_s}", role="planner")

    async with anyio.create_task_group() as people:
        people.start_soon(order, 11.0, PauseRequested(reason="test"))
        people.start_soon(order, 1011.0, ContinueRequested())
        finished = await rig.search(planner, coder_model=coder, evaluation_s=1.0)
    assert (finished.stopped_by, finished.rounds) == ("rounds", 20)
    assert rig.folded().state.elapsed_s < 100
    resting = False
    for fact in rig.facts():
        resting = isinstance(fact, RunPaused) or (resting and not isinstance(fact, RunContinued))
        assert not (resting and isinstance(fact, BranchStarted | WriteRequested))


async def test_a_question_that_was_refused_during_a_pause_is_asked_when_the_run_goes_on() -> None:
    rig = Rig(settings(rounds=3))
    asked: list[float] = []

    def answer(_: Request) -> str:
        asked.append(anyio.current_time())
        parent = "n99" if len(asked) == 1 else "n0"
        insert = f'"parent": "{parent}", "title": "t", "description": "", "difficulty": 1, "priority": 0.5'
        return f'{{"edits": [{{"op": "insert", {insert}}}]}}'

    async def rest() -> None:
        await anyio.sleep(1.0)
        await rig.bus.publish(rig.started.run_id, encode(PauseRequested(reason="test")), msg_id="pause")
        await anyio.sleep(500.0)
        await rig.bus.publish(rig.started.run_id, encode(ContinueRequested()), msg_id="continue")

    async with anyio.create_task_group() as people:
        people.start_soon(rest)
        await rig.search(ScriptedModel(answer, latency_s=5.0), coder_model=ScriptedModel(coder_answers()))
    assert asked[1] - asked[0] > 490
