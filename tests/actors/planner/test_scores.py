"""What the planner's model is told where candidates have scores."""

from __future__ import annotations

import msgspec
from rpds import HashTrieMap

from actors.planner.core.state import Incumbent, Node, Report, Score, SearchState, root_node
from actors.planner.prompts import plan_request
from messages.facts import PlanRequested
from messages.tasks import Target, TaskDescription

TASK = TaskDescription(
    task_id="t" * 32, name="p", language="python", tensors=(), prompt="# Task", entry_point="", bytes_moved=0
)
BEST = Score(candidate_id="c1", credit=-2.5)
REPORT = Report(branch_id="b1", node_id="n1", reason="stagnant", base=None, best=BEST, attempts=())


def search(initial: float | None) -> SearchState:
    root = root_node()
    if initial is not None:
        root = msgspec.structs.replace(root, best=Score(candidate_id="c0", credit=initial))
    nodes = {
        "n0": msgspec.structs.replace(root, children=("n1",)),
        "n1": Node(node_id="n1", parent_id="n0", title="Sort first", state="closed", best=BEST, depth=1),
    }
    return SearchState(
        run_id="r1",
        initial_id="c0",
        target=Target(arch="x86_64", march="", toolchain="CPython 3.11.7", device="AMD EPYC"),
        nodes=HashTrieMap(nodes),
        reports=(REPORT,),
        incumbent=Incumbent(candidate_id="c1", node_id="n1", round=1, credit=-2.5),
    )


def prompt(initial: float | None) -> str:
    request = PlanRequested(job_id="r1-p1", purpose="revise", branch_ids=("b1",))
    return plan_request(search(initial), request, TASK).prompt


def test_results_are_scores_in_tree_report_and_budget() -> None:
    told = prompt(-4.0)
    assert "n0 | root | the initial program, score -4" in told
    assert "| Sort first | best score -2.5" in told
    assert "Result: score -2.5." in told
    assert "It is the best so far." in told
    assert "- best so far: score -2.5, found at n1" in told
    assert "run by CPython 3.11.7" in told
    for word in ("bytes must be", "-march", "2.50x"):
        assert word not in told


def test_an_initial_program_that_is_not_yet_scored_is_said_to_be_so() -> None:
    assert "It started from n0 (the initial program, not yet scored)" in prompt(None)
