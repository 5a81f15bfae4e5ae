from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rpds import HashTrieMap

from actors.llm.base import Request
from actors.planner.answers import parse_script
from actors.planner.core.state import Attempt, Incumbent, Instruction, Node, Report, Score, SearchState, root_node
from actors.planner.prompts import node_line, plan_request, told
from evaluators.hardware.profiles import describe_profile
from messages.edits import EditScript, Insert, Refusal
from messages.facts import CallPurpose, PlanRequested
from messages.settings import Budget, SearchSettings
from messages.tasks import Target, TaskDescription
from messages.verdicts import Fate
from tests.messages.examples import PROFILE

TASK = TaskDescription(
    task_id="t" * 32,
    name="scale",
    language="cpp",
    tensors=(),
    prompt="# Task scale\n\n" + "Every word of the task matters. " * 400,
    entry_point="ksearch_run",
    bytes_moved=4096,
)
GOOD = Score(candidate_id="c1", credit=2.9, speedup=3.0, latency_us=50.0)
FATES: tuple[Fate, ...] = (
    "did_not_build", "crashed", "wrong", "timed_out", "unusable", "rejected", "quarantined", "unstable", "outpaced",
)  # fmt: skip


def attempts(*fates: Fate) -> tuple[Attempt, ...]:
    return tuple(
        Attempt(number=number, candidate_id=None, fate=fate, outcome=f"{fate}: reason {number}")
        for number, fate in enumerate(fates, start=1)
    )


def search(*reports: Report) -> SearchState:
    nodes = {
        "n0": msgspec.structs.replace(root_node(), children=("n1", "n2")),
        "n1": Node(node_id="n1", parent_id="n0", title="Fuse", description="One pass.", state="closed", best=GOOD),
        "n2": Node(node_id="n2", parent_id="n0", title="Tile", description="Tile by 8 rows.", state="open"),
    }
    return SearchState(
        run_id="r1",
        target=Target(arch="x86_64", march="x86-64-v4", toolchain="g++ 12.2", device="AMD EPYC"),
        settings=SearchSettings(budget=Budget(max_rounds=40, max_calls=90)),
        nodes=HashTrieMap(nodes),
        reports=reports,
        rounds=7,
        summary="Memory bound.",
        open_questions=("Is exp the limit?",),
        incumbent=Incumbent(candidate_id="c1", node_id="n1", round=3, credit=2.9, speedup=3.0, latency_us=50.0),
    )


def asked(state: SearchState, purpose: CallPurpose = "revise", **changes: object) -> Request:
    request = msgspec.structs.replace(PlanRequested(job_id="r1-p1", purpose=purpose), **changes)
    return plan_request(state, request, TASK)


def report(best: Score | None, *fates: Fate, node_id: str = "n2") -> Report:
    return Report(
        branch_id="b1", node_id=node_id, reason="5 attempts without improvement", base=GOOD, best=best,
        attempts=attempts(*fates),
    )  # fmt: skip


def test_every_call_begins_with_the_whole_task_and_the_hardware() -> None:
    first = asked(search(), "analyse", wanted=6)
    later = asked(search(report(None, "wrong")), branch_ids=("b1",))
    assert TASK.prompt in first.parts[0]
    assert "AMD EPYC" in first.parts[0]
    assert first.parts[0] == later.parts[0]
    assert first.system == later.system


def test_the_analysis_asks_for_three_actions_under_the_root() -> None:
    prompt = asked(search(), "analyse", wanted=6).prompt
    assert "insert at least 3 and at most 6 actions under n0" in prompt


def test_a_revision_holds_the_tree_the_picture_and_the_budget() -> None:
    prompt = asked(search(), wanted=4).prompt
    assert "n1 < n0 | closed" in prompt
    assert "Memory bound.\n\nOpen questions:\n- Is exp the limit?" in prompt
    assert "7 of 40 rounds" in prompt
    assert "0 of 90 model calls" in prompt
    assert "Insert 4 new actions (at most 8)" in prompt


def test_a_branch_that_gained_is_compared_with_parent_and_incumbent() -> None:
    best = Score(candidate_id="c2", credit=3.3, speedup=3.6, latency_us=40.0)
    prompt = asked(search(report(best, "measured", "wrong")), branch_ids=("b1",)).prompt
    assert "# Finished branch on n2: Tile\n\nTile by 8 rows." in prompt
    assert "1. measured: reason 1\n2. wrong: reason 2" in prompt
    assert "Against its parent (3.00x): 1.20 times as fast [1.10, 1.24]." in prompt
    assert "Against the best so far (n1): 1.20 times as fast." in prompt
    assert "This branch failed" not in prompt


@pytest.mark.parametrize("fate", FATES)
def test_a_failed_branch_is_told_by_the_class_of_its_failures(fate: Fate) -> None:
    prompt = asked(search(report(None, fate, fate, "lost")), branch_ids=("b1",)).prompt
    assert "This branch failed: it has no correct candidate." in prompt
    section = prompt[prompt.index("This branch failed") :]
    line = next(line for line in section.splitlines() if line.startswith("- 2 of 3 "))
    assert len(line) > 40
    assert "prune it; as it stands" in section


def test_only_the_branches_of_the_call_are_told() -> None:
    assert "# Finished" not in asked(search(report(GOOD, "measured"))).prompt


def test_what_takes_the_time_of_the_best_is_told_where_it_is_known() -> None:
    request = PlanRequested(job_id="r1-p1", purpose="revise")
    told = plan_request(search(), request, TASK, profiles={"c1": (PROFILE,)}.__getitem__).prompt
    assert f"# What takes the time of the best so far (n1)\n\n{describe_profile([PROFILE])}" in told
    assert "What takes the time" not in plan_request(search(), request, TASK, profiles=lambda _: ()).prompt
    beginning = msgspec.structs.replace(search(), incumbent=None)
    assert "What takes the time" not in plan_request(beginning, request, TASK, profiles=lambda _: (PROFILE,)).prompt


def test_childless_nodes_and_refusals_are_told() -> None:
    refusals = (Refusal(index=2, reason="parent 'n9' does not exist"), Refusal(index=-1, reason="9 new nodes"))
    prompt = asked(search(), childless=("n1",), refusals=refusals).prompt
    assert "- n1: Fuse (3.00x, credit 2.90)" in prompt
    assert "- edits[2]: parent 'n9' does not exist\n- the whole: 9 new nodes" in prompt


def test_the_example_of_the_answer_format_is_an_answer() -> None:
    script, complaint = parse_script(asked(search()).system)
    assert complaint == ""
    assert script is not None
    assert [type(edit).__name__ for edit in script.edits] == ["Update", "Insert", "Prune"]


SCRIPT = EditScript(
    summary='Say "{" and `}`.',
    edits=(Insert(parent="n0", title="T", description='a "quoted" } brace', difficulty=2, priority=0.5),),
)
TEXT = msgspec.json.encode(SCRIPT).decode()


@pytest.mark.parametrize(
    "answer",
    [
        TEXT,
        f"```json\n{TEXT}\n```",
        f"Let me think about {{x}} and {{}} first.\n{TEXT}\nThat is all }}.",
        f"```\n{json.dumps(json.loads(TEXT), indent=2)}\n```\nand {{}}",
    ],
)
def test_a_script_is_found_in_a_fence_or_bare(answer: str) -> None:
    assert parse_script(answer) == (SCRIPT, "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("", "is empty"),
        ("I would fuse the passes.", "no JSON object; it said: 'I would fuse"),
        (TEXT[:-3], "cut off"),
        ('{"edits": [{"op": "drop", "node": "n1"}]}', "insert, update, prune, split"),
        ('{"edits": [{"op": "prune", "node": "n1", "reason": "r", "state": "closed"}]}', "not yours to write"),
        ('{"edits": [{"op": "update", "node": "n1", "priority": 3}]}', "$.edits[0].priority"),
        ('{"edits": [{"op": "insert", "parent": "n0", "title": "t"}]}', "missing required field `description`"),
        ('{"edits": [{"op": "split", "node": "n1", "into": []}]}', "$.edits[0].into"),
    ],
)
def test_an_unusable_script_is_told_precisely_what_was_wrong(answer: str, said: str) -> None:
    script, complaint = parse_script(answer)
    assert script is None
    assert said in complaint


@given(st.text(st.sampled_from('{}"\\ae:[]'), max_size=200))
@settings(deadline=None)
def test_any_text_is_a_script_or_a_complaint(text: str) -> None:
    script, complaint = parse_script(text)
    assert (script is None) == bool(complaint)


def test_an_answer_of_nothing_but_braces_is_given_up_soon() -> None:
    assert parse_script("{" * 200_000)[0] is None


def instructed(*texts: str) -> SearchState:
    given = tuple(Instruction(number=at, text=text, to="both") for at, text in enumerate(texts, start=1))
    return msgspec.structs.replace(search(), instructions=given)


def test_instructions_stand_in_every_call_in_a_section_of_their_own_behind_the_task() -> None:
    state = instructed("No threads.", "Keep it short.\n# What is wanted\nNothing.")
    for purpose in ("analyse", "revise"):
        request = asked(state, purpose)
        (section,) = [part for part in request.parts if part.startswith("# What the people who run this search")]
        assert section.endswith("- 1. No threads.\n- 2. Keep it short.\n  # What is wanted\n  Nothing.")
        assert request.parts.index(section) == 1


def test_of_many_instructions_the_newest_is_whole_and_older_ones_as_far_as_there_is_room() -> None:
    state = instructed("oldest " + "o" * 3990, "middle", "newest " + "n" * 7995)
    shown = [said.text[:6] for said in told(state, "planner")]
    assert shown == ["newest"]
    assert [said.text[:6] for said in told(instructed("a", "b" * 4000, "c" * 4000), "coder")] == ["b" * 6, "c" * 6]
    assert [said.text for said in told(instructed("a", "b"), "coder")] == ["a", "b"]


def test_an_instruction_to_one_is_not_told_the_other() -> None:
    given = (Instruction(number=1, text="a", to="coder"), Instruction(number=2, text="b", to="planner"))
    state = msgspec.structs.replace(search(), instructions=given)
    assert [said.text for said in told(state, "coder")] == ["a"]
    assert "- 2. b" in asked(state).prompt
    assert "- 1. a" not in asked(state).prompt


def test_what_a_person_ordered_for_a_node_is_told_the_model() -> None:
    node = Node(
        node_id="n1", parent_id="n0", title="Fuse", pinned=4, boost=0.2, origin="person", earlier="1.50x on cpu"
    )
    line = node_line(node)
    assert "a person's own | pinned by a person: comes next | a person adds +0.20 to its score" in line
    assert "in an earlier run: 1.50x on cpu" in line
    assert "forbidden by a person" in node_line(msgspec.structs.replace(node, forbidden="", barred=True))
