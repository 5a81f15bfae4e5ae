"""What the original's prompts lost, and ours must not: see docs/design/0006-defects-of-the-original.md."""

from __future__ import annotations

import msgspec
from rpds import HashTrieMap

from actors.planner.core.state import Node, SearchState, root_node
from actors.planner.prompts import plan_request
from messages.edits import Refusal
from messages.facts import PlanRequested
from messages.tasks import TaskDescription

SHAPES = "Shapes: (2, 256, 256, 128), masks in half of the cases."
TASK = TaskDescription(
    task_id="t" * 32,
    name="trimul",
    language="triton",
    tensors=(),
    prompt="# Task\n\n" + "A long text. " * 2000 + SHAPES,
    entry_point="ksearch_run",
    bytes_moved=0,
)
DEEP = 60


def chain(depth: int) -> SearchState:
    """Return a tree that is one path: each node closed but the last."""
    nodes = {"n0": msgspec.structs.replace(root_node(), children=("n1",))}
    for number in range(1, depth + 1):
        nodes[f"n{number}"] = Node(
            node_id=f"n{number}",
            parent_id=f"n{number - 1}",
            title=f"Step {number} of a path",
            depth=number,
            state="open" if number == depth else "closed",
            children=() if number == depth else (f"n{number + 1}",),
        )
    return SearchState(run_id="r1", nodes=HashTrieMap(nodes))


def prompt(state: SearchState, **changes: object) -> str:
    request = msgspec.structs.replace(PlanRequested(job_id="r1-p1", purpose="revise"), **changes)
    return plan_request(state, request, TASK).prompt


def test_every_call_has_the_whole_task_to_its_last_word() -> None:
    """12: a section picker that keyed on headings lost shapes and constraints after the first call."""
    for purpose in ("analyse", "revise"):
        assert SHAPES in prompt(chain(3), purpose=purpose)


def test_each_reason_of_a_refusal_is_told_to_its_last_word() -> None:
    """8: the reasons were cut to nothing behind an action of ordinary length."""
    reasons = tuple(
        Refusal(index=index, reason=f"edit {index}: " + "because " * 60 + f"end {index}") for index in range(20)
    )
    told = prompt(chain(3), refusals=reasons, tries=1)
    for refusal in reasons:
        assert refusal.reason in told


def test_each_node_of_a_deep_path_is_known_by_its_id() -> None:
    """11: of a path of six the lines were cut in the middle, and most siblings were never shown."""
    told = prompt(chain(DEEP))
    for number in range(1, DEEP + 1):
        assert f"n{number} < n{number - 1} " in told
    assert f"Step {DEEP} of a path" in told
