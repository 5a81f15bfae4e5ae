"""What the planner's model is told over a search: nothing twice, nothing changed, and what is new at the end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import msgspec
import pytest

from actors.llm.base import Request
from actors.planner.core.evolve import bytes_per_token, evolve
from actors.planner.core.state import SearchState
from actors.planner.prompts import plan_request, tree_digest
from messages.base import Usage
from messages.edits import EditScript, Insert, Update
from messages.facts import PlanRequested, SpendRecorded
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate, Target, TaskDescription, TensorSpec
from messages.verdicts import Crashed, Interval, Measured, Outpaced, TimedOut, TimedWorkload, Verdict, Wrong
from tests.actors.planner.core.decisions import played
from tests.actors.planner.core.world import DESCRIPTION, WRONG, World, candidate, inserts, measured, only_branch, search

H200 = Target(arch="sm_90", march="", toolchain="nvcc 13", device="NVIDIA H200")
LARGE = TaskDescription(
    task_id="t",
    name="large",
    language="cuda",
    tensors=(
        TensorSpec(name="x", role="input", shape=(1 << 30,), dtype="float32"),
        TensorSpec(name="y", role="output", shape=(1,), dtype="float32"),
    ),
    prompt="# Task",
    entry_point="f",
    bytes_moved=1 << 32,
)


def prompts_of(world: World) -> list[tuple[PlanRequested, Request]]:
    """Fold a search's facts again, and ask what its planner asked."""
    state, asked = SearchState(), []
    for fact in world.facts:
        state = evolve(state, fact)
        if isinstance(fact, PlanRequested):
            asked.append((fact, plan_request(state, fact, DESCRIPTION)))
    return asked


def told(request: Request) -> str:
    """Return what a prompt tells of the tree and of what happened, without how things stand now."""
    text = request.prompt
    ends = [text.index(heading) for heading in ("# Your picture", "# Open actions", "# Budget") if heading in text]
    return text[: min(ends)]


@pytest.mark.parametrize("branches", [1, 4])
def test_a_prompt_begins_with_all_that_the_one_before_had_told_unless_the_tree_is_written_anew(branches: int) -> None:
    world = played(SearchSettings(branches=branches, stagnation_window=2, budget=Budget(max_rounds=150)))
    asked = prompts_of(world)
    renewed = [request for request, _ in asked if request.renews]
    assert len(asked) > 10
    assert 1 < len(renewed) < len(asked) / 3
    for (_, before), (request, now) in itertools.pairwise(asked):
        if not request.renews:
            assert told(now).startswith(told(before).rstrip("\n"))


def test_each_branch_is_told_once_and_again_only_as_what_was_told() -> None:
    world = search(window=1)
    world.propose(inserts(2))
    world.attempt("a", WRONG)
    first = plan_request(world.state, world.plan(), DESCRIPTION)
    world.propose(None)  # refused: it is asked again
    again = plan_request(world.state, world.plan(), DESCRIPTION)
    assert first.prompt.count("# Finished branch on n1") == again.prompt.count("# Finished branch on n1") == 1
    assert told(again).startswith(told(first).rstrip("\n"))
    assert "Your previous answer was refused" in again.prompt


def test_of_a_node_that_changed_the_last_line_says_how_it_is_now() -> None:
    world = search(window=1)
    world.propose(inserts(2))
    world.attempt("a", WRONG)
    world.propose(EditScript(edits=(Update(node="n2", priority=0.9, expected_gain=1.25),)))
    world.attempt("b", measured(2.0))
    world.attempt("c", WRONG)
    prompt = plan_request(world.state, world.plan(), DESCRIPTION).prompt
    lines = [line for line in prompt.splitlines() if line.startswith("n2 < n0")]
    assert lines[-1].startswith("n2 < n0 | closed | V 0.90")
    assert "best 2.02x" in lines[-1]


def test_what_is_in_flight_and_what_would_be_taken_next_stands_at_the_end() -> None:
    world = search(window=1)
    world.propose(inserts(3))
    world.attempt("a", WRONG)
    prompt = plan_request(world.state, world.plan(), DESCRIPTION).prompt
    frontier = prompt[prompt.index("# Open actions") :]
    assert "In flight: n2" in frontier
    assert "n1 0.25 (V 0.50 counts 0.25, 1 failed)" in frontier
    assert frontier.index("n3 0.50") < frontier.index("n1 0.25")


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            Wrong(reason="r", elements=8, wrong_elements=2, first_wrong=(0, 7), patterns=("tail columns",)),
            "2 of 8 elements are wrong (25.0%), the first at [0, 7]\n  the wrong places: tail columns",
        ),
        (TimedOut(reason="r", stage="check", limit_s=10.0), "killed after 10 s of check"),
        (Crashed(reason="r", stage="check"), "it crashed during check"),
    ],
)
def test_a_failed_branch_is_told_with_what_is_known_of_each_class(verdict: Verdict, said: str) -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("a", verdict)
    prompt = plan_request(world.state, world.plan(), DESCRIPTION).prompt
    assert said in prompt[prompt.index("This branch failed") :]


def test_the_best_attempt_is_not_counted_among_the_others_though_its_time_is_not_exact() -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("a", Outpaced(reason="0.4x", speedup_interval=Interval(low=0.3, high=0.5)))
    world.attempt("b", WRONG)
    prompt = plan_request(world.state, world.plan(), DESCRIPTION).prompt
    told_of = prompt[prompt.index("Of its other attempts:") : prompt.index("# Open actions")]
    assert "1 of 2 gave wrong results" in told_of
    assert "clearly slower" not in told_of


def test_a_gain_is_told_with_its_interval_what_was_expected_and_what_changed() -> None:
    world = search(window=1)
    expecting = Insert(parent="n0", title="t", description="d", difficulty=1, priority=0.5, expected_gain=3.0)
    world.propose(EditScript(edits=(expecting,)))
    timed = TimedWorkload(
        name="wide", latency_us=5.0, reference_latency_us=10.0, speedup_vs_reference=2.0,
        speedup_interval=Interval(low=1.9, high=2.1),
    )  # fmt: skip
    world.attempt("one\ntwo\nthree", with_workload(measured(2.0), timed))
    world.attempt("worse", measured(1.0))
    world.propose(EditScript(edits=(Insert(parent="n1", title="u", description="d", difficulty=1, priority=0.5),)))
    world.attempt("one\n2\nthree\nfour", measured(3.0))
    world.attempt("worse too", measured(1.1))
    prompt = plan_request(
        world.state, world.plan(), DESCRIPTION, programs=programs("one\ntwo\nthree", "one\n2\nthree\nfour")
    ).prompt
    assert "2.02 times as fast [2.00, 2.05]; 3.00 was expected." in prompt
    assert "- wide: 2.00x the reference [1.90, 2.10], 5.0 us against 10.0 us" in prompt
    assert "Changed against its base: k.cpp +2 -1 lines of 4." in prompt
    assert "1 actions with an expected gain were measured" in prompt


def with_workload(verdict: Measured, timed: TimedWorkload) -> Measured:
    return Measured(
        timed=True,
        latency_us=verdict.latency_us,
        reference_latency_us=verdict.reference_latency_us,
        speedup_vs_reference=verdict.speedup_vs_reference,
        speedup_interval=verdict.speedup_interval,
        workloads=(timed,),
    )


def programs(*texts: str) -> Callable[[str], Candidate | None]:
    return {found.candidate_id: found for found in map(candidate, texts)}.get


def test_a_latency_is_told_as_a_share_of_the_roofline_where_the_device_is_known() -> None:
    world = search(window=1)
    world.propose(inserts(1))
    world.attempt("a", measured(0.5))
    world.attempt("b", measured(0.4))
    state = msgspec.structs.replace(world.state, target=H200)
    prompt = plan_request(state, world.plan(), LARGE).prompt
    assert "of the roofline" in prompt
    assert "Roofline: " in prompt[: prompt.index("# The tree")]


def test_a_merge_is_told_with_its_second_parent() -> None:
    world = search(window=1)
    world.propose(inserts(2))
    for text, credit in (("a", 2.0), ("a2", 1.9)):
        world.attempt(text, measured(credit))
    for text, credit in (("b", 1.5), ("b2", 1.4)):
        world.attempt(text, measured(credit))
    world.propose(
        EditScript(edits=(Insert(parent="n1", merge="n2", title="m", description="d", difficulty=1, priority=1.0),))
    )
    while not only_branch(world).second:
        world.attempt(f"c{world.state.rounds}", WRONG)
    world.attempt("merged", WRONG)
    world.propose(EditScript())  # the call that was under way
    prompt = plan_request(world.state, world.plan(), DESCRIPTION).prompt
    assert "It started from n1 (2.02x, credit 2.00), merging n2 (1.52x, credit 1.50)" in prompt
    assert " < n1 + n2 | open" in prompt


def test_the_budget_of_the_tree_is_in_tokens_as_the_model_counts_them() -> None:
    state = SearchState()
    assert bytes_per_token(state) == 4.0
    for model, tokens in (("a", 1000), ("b", 500), ("b", 1500)):
        usage = Usage(calls=1, prompt_tokens=tokens)
        state = evolve(state, SpendRecorded(role="planner", usage=usage, model=model, prompt_bytes=3000))
    assert bytes_per_token(state) == pytest.approx(3.0)  # of b, over both its answers
    estimated = Usage(calls=1, prompt_tokens=1, estimated_calls=1)
    state = evolve(state, SpendRecorded(role="planner", usage=estimated, model="b", prompt_bytes=3000))
    assert bytes_per_token(state) == pytest.approx(3.0), "an estimate teaches nothing"


def test_a_tree_of_many_languages_stays_within_its_budget_of_bytes() -> None:
    world = search()
    draw = random.Random(1)
    for _ in range(12):
        titles = ["".join(draw.choice("äöüß漢字тест") for _ in range(60)) for _ in range(8)]
        edits = tuple(Insert(parent="n0", title=title, description="", difficulty=1, priority=0.5) for title in titles)
        world.propose(EditScript(edits=edits))
        world.attempt(titles[0], WRONG)
        world.attempt(titles[1], WRONG)
    nodes = [world.state.nodes[f"n{index}"] for index in range(len(world.state.nodes))]
    text = tree_digest(nodes, budget_bytes=4000)
    assert len(text.encode()) <= 4000 + 120
