from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rpds import HashTrieMap

from actors.llm.offline import OfflineModel
from actors.llm.offline.answers import code_answer, plan_answer
from actors.llm.offline.cpp.moves import CATALOGUE
from actors.llm.offline.plan import read_plan
from actors.planner.answers import parse_script
from actors.planner.core.scripts import conflicts
from actors.planner.core.state import Node, Score, SearchState, root_node
from actors.planner.prompts import plan_request
from messages.edits import EditScript, Insert, Prune, Refusal, Update
from messages.facts import EditsApplied, EditsRefused, NodeInserted, PlanRequested
from messages.settings import Budget, SearchSettings, WorldModel
from messages.tasks import Candidate
from messages.verdicts import DidNotBuild, Interval, Measured, Verdict
from tests.actors.llm.offline.prompts import (
    ATTENTION,
    CONVOLUTION,
    coder_prompt,
    description,
    of_several_workloads,
    write_job,
)
from tests.actors.llm.offline.references import reference
from tests.actors.planner.rig import Rig
from tests.contracts.models import ModelContract

FUSE, THREADS, LANES = "Fuse stages, block by block", "Share rows among threads", "Vectorise all loops"
KEEP = "Keep costly values of a row"


class TestContract(ModelContract):
    @pytest.fixture
    def model(self) -> OfflineModel:
        return OfflineModel()


def search(*nodes: Node) -> SearchState:
    """A tree of these; each knows its children, without which no title is refused."""
    tree = (root_node(), *nodes)
    below = {above.node_id: tuple(one.node_id for one in nodes if one.parent_id == above.node_id) for above in tree}
    return SearchState(
        nodes=HashTrieMap({one.node_id: msgspec.structs.replace(one, children=below[one.node_id]) for one in tree})
    )


def node(node_id: str, title: str, *, best: float | None = None, parent_id: str = "n0", **changes: object) -> Node:
    fields: dict[str, object] = {
        "node_id": node_id,
        "parent_id": parent_id,
        "title": title,
        "priority": 0.5,
        "difficulty": 2,
        "state": "open" if best is None else "closed",
        "best": None if best is None else Score(candidate_id="c", credit=best * 0.95, speedup=best, latency_us=1.0),
    }
    return Node(**(fields | changes))  # type: ignore[arg-type]


def answered(state: SearchState, request: PlanRequested, *, text: str | None = None) -> EditScript:
    told = description(ATTENTION if text is None else text)
    script, complaint = parse_script(plan_answer(plan_request(state, request, told).prompt))
    assert script is not None, complaint
    return script


def revised(state: SearchState, *, wanted: int = 4, refusals: tuple[Refusal, ...] = ()) -> EditScript:
    return answered(state, PlanRequested(job_id="r1-p1", purpose="revise", wanted=wanted, refusals=refusals))


def test_the_analysis_brings_actions_that_can_be_applied() -> None:
    state = search()
    script = answered(state, PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8))
    assert len([edit for edit in script.edits if isinstance(edit, Insert)]) >= 3
    assert conflicts(state, script, limit=8) == ()
    assert "37 rows of 131 columns" in script.summary


def test_a_gain_raises_v_where_the_same_transformation_is_still_open() -> None:
    def value_of_lanes(measured: float) -> float:
        state = search(
            node("n1", LANES, best=measured),
            node("n2", FUSE, best=4.0),
            node("n3", LANES, parent_id="n2", priority=0.0),
            node("n4", THREADS, best=0.5),
        )
        updates = {edit.node: edit.priority for edit in revised(state).edits if isinstance(edit, Update)}
        return updates["n3"] or 0.0

    assert value_of_lanes(4.0) > value_of_lanes(2.0) > value_of_lanes(1.0)


def test_new_actions_hang_under_closed_nodes_and_repeat_no_combination() -> None:
    state = search(node("n1", FUSE, best=2.0), node("n2", THREADS, best=1.5), node("n3", THREADS, parent_id="n1"))
    script = revised(state, wanted=8)
    inserts = [edit for edit in script.edits if isinstance(edit, Insert)]
    assert len(inserts) == 8
    assert conflicts(state, script, limit=8) == ()
    assert not any(edit.parent == "n2" and edit.title == FUSE for edit in inserts)
    assert not any(edit.parent == "n3" for edit in inserts)


def test_what_helped_apart_is_brought_together() -> None:
    state = search(node("n1", FUSE, best=2.0), node("n2", THREADS, best=1.6), node("n3", LANES, best=3.0))
    inserts = [edit for edit in revised(state, wanted=8).edits if isinstance(edit, Insert)]
    best = max(inserts, key=lambda edit: edit.priority)
    assert (best.parent, best.title) == ("n3", f"{FUSE} + {THREADS}")


def test_the_answer_is_the_same_in_every_process() -> None:
    """Python orders sets of texts anew in each process, unless it is told a seed."""
    tree = (
        node("n1", THREADS, best=3.0),
        node("n2", FUSE, best=1.0),
        node("n3", KEEP, best=2.0, parent_id="n2"),
    )
    request = PlanRequested(job_id="r1-p1", purpose="revise", wanted=8)
    prompt = plan_request(search(*tree), request, description(ATTENTION)).prompt
    code = "import sys; from actors.llm.offline.answers import plan_answer; print(plan_answer(sys.stdin.read()))"
    answers = set()
    for seed in range(4):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parents[4])}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, input=prompt, env=environment, capture_output=True, text=True, check=True)
        answers.add(done.stdout)
    assert len(answers) == 1
    assert f"{KEEP} + " in answers.pop()


def test_what_failed_twice_is_pruned() -> None:
    state = search(node("n1", LANES, tries=2, failures=2, rounds=9), node("n2", FUSE, best=2.0))
    assert [edit.node for edit in revised(state).edits if isinstance(edit, Prune)] == ["n1"]


def test_after_a_refusal_the_refused_edits_are_left_out() -> None:
    state = search(node("n1", FUSE, best=2.0))
    first = next(edit for edit in revised(state).edits if isinstance(edit, Insert))
    refusals = (Refusal(index=0, reason=f"'n9' under 'n1' is called {first.title!r} already"),)
    titles = [edit.title for edit in revised(state, refusals=refusals).edits if isinstance(edit, Insert)]
    assert first.title not in titles


def test_what_there_is_no_rule_for_is_said_and_nothing_is_proposed() -> None:
    script = answered(search(), PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8), text=CONVOLUTION)
    assert script.edits == ()
    assert "conv1d" in script.summary


def test_a_node_that_has_every_transformation_and_was_tuned_gets_no_more_children() -> None:
    names = " + ".join
    everything = [move.title for move in CATALOGUE.moves]
    chain = [node("n1", names(everything), best=3.0)]
    chain += [
        node(f"n{number + 1}", f"Tune the parameters, round {number}", best=3.0, parent_id=f"n{number}")
        for number in range(1, 4)
    ]
    script = revised(search(*chain))
    assert not [edit for edit in script.edits if isinstance(edit, Insert) and edit.parent != "n0"]


def landscape(candidate: Candidate) -> Verdict:
    """A verdict by the program's plan: fusing, threads and lanes each help, and most when they come together."""
    plan = read_plan(candidate.files[0].text)
    assert plan is not None
    if plan.rows == 4:
        return DidNotBuild(reason="no such thing")
    speedup = 0.5 * (1 + plan.fuse) * (1 + 0.8 * plan.threads) * (1 + 2 * plan.vectorise * plan.fuse)
    speedup *= {1: 1.0, 4: 1.2, 6: 1.1, 8: 1.15}[plan.tile] * (1.3 if plan.pack else 1.0)
    speedup *= {1: 1.0, 2: 1.2, 3: 1.1, 4: 1.3}[plan.lanes] * (1.2 if plan.reuse else 1.0)
    return Measured(
        timed=True,
        latency_us=1000 / speedup,
        reference_latency_us=1000.0,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=speedup * 0.99, high=speedup * 1.01),
        pairs=8,
    )


@pytest.mark.anyio
@pytest.mark.virtual_time
@pytest.mark.parametrize("branches", [1, 4])
async def test_a_whole_search_with_the_rules_uses_its_rounds_and_stacks_transformations(branches: int) -> None:
    rig = Rig(SearchSettings(branches=branches, budget=Budget(max_rounds=60)), description=description(ATTENTION))
    finished = await rig.search(OfflineModel(latency_s=0.5), judge=landscape, evaluation_s=0.3)
    facts = list(rig.facts())
    assert finished.stopped_by == "rounds"
    assert (finished.speedup or 0.0) > 5.0
    assert not [fact for fact in facts if isinstance(fact, EditsRefused)]
    inserted = [c for f in facts if isinstance(f, EditsApplied) for c in f.changes if isinstance(c, NodeInserted)]
    assert any(change.parent_id != "n0" for change in inserted)


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_a_tree_that_is_revised_reaches_more_than_one_that_is_made_once() -> None:
    reached: dict[WorldModel, float] = {"evolving": 0.0, "frozen": 0.0}
    for mode in reached:
        for seed in range(5):
            settings = SearchSettings(world_model=mode, budget=Budget(max_rounds=40))
            rig = Rig(settings, description=description(ATTENTION), run_id=f"r{seed}")
            finished = await rig.search(OfflineModel(seed=seed, latency_s=0.5), judge=landscape, evaluation_s=0.3)
            reached[mode] += finished.speedup or 0.0
    assert reached["evolving"] > reached["frozen"]


def test_a_program_of_several_stages_gets_actions_of_its_own() -> None:
    product = reference("x, gate):\n        return (x @ gate.t()) @ gate * self.weight", "[]")
    script = answered(search(), PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8), text=product)
    assert "stages: 3 (a contraction of 37x37 over 131" in script.summary
    titles = {edit.title for edit in script.edits if isinstance(edit, Insert)}
    assert "Fuse stages, block by block" in titles
    assert conflicts(search(), script, limit=8) == ()


@pytest.mark.parametrize("rows", [(1, 37), (37, 1)])
def test_of_several_workloads_the_largest_says_what_pays(rows: tuple[int, ...]) -> None:
    """A single row leaves threads nothing to share."""
    request = PlanRequested(job_id="r1-p1", purpose="analyse", wanted=8)
    prompt = plan_request(search(), request, of_several_workloads(*rows)).prompt
    script, complaint = parse_script(plan_answer(prompt))
    assert script is not None, complaint
    assert THREADS in {edit.title for edit in script.edits if isinstance(edit, Insert)}
    assert "37 rows of 131 columns" in script.summary
    written = code_answer(coder_prompt(write_job(THREADS, task=of_several_workloads(*rows))), seed=0)
    assert "The plan is now `threads`" in written


def test_what_a_person_ordered_is_left_as_it_is() -> None:
    state = search(
        node("n1", FUSE, best=2.0),
        node("n2", THREADS, best=1.6, forbidden="no threads", barred=True),
        node("n3", LANES, parent_id="n2", priority=0.0, barred=True),
        node("n4", LANES, pinned=True, tries=2, failures=2, rounds=9),
        node("n5", "Vary n1", parent_id="n1", boost=0.3, tries=2, failures=2, rounds=9),
        node("n6", THREADS, parent_id="n1", forbidden="", barred=True, tries=2, failures=2, rounds=9),
    )
    script = revised(state, wanted=8)
    assert script.edits
    assert conflicts(state, script, limit=8) == ()


def test_an_action_whose_title_was_cut_in_the_prompt_is_not_proposed_again() -> None:
    """A digest over its budget shows the beginnings of titles of what is done with."""
    helped = (node("n1", LANES, best=3.0), node("n2", FUSE, best=2.0), node("n3", THREADS, best=1.9))
    title = f"{FUSE} + {THREADS}"
    assert ("n1", title) in [
        (edit.parent, edit.title) for edit in revised(search(*helped)).edits if isinstance(edit, Insert)
    ]
    state = search(*helped, node("n4", title, parent_id="n1", best=4.0))
    request = PlanRequested(job_id="r1-p1", purpose="revise", wanted=8)
    prompt = plan_request(state, request, description(ATTENTION)).prompt
    cut = prompt.replace(f"| {title} |", f"| {FUSE} + … |")
    assert cut != prompt
    script, complaint = parse_script(plan_answer(cut))
    assert script is not None, complaint
    assert conflicts(state, script, limit=8) == ()
