from __future__ import annotations

import re

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from rpds import HashTrieMap

from actors.planner import prompts as digests
from actors.planner.core.state import Node, Score, SearchState, in_order, root_node

AMPLE = 1_000_000


def score(credit: float) -> Score:
    return Score(candidate_id="c", credit=credit, speedup=credit * 1.1, latency_us=10.0)


def tree(count: int, *, fanout: int = 4) -> SearchState:
    """Return a tree of `count` actions: node k hangs under node k // fanout; the later half is open."""
    nodes = {"n0": root_node()}
    for number in range(1, count + 1):
        parent = nodes[f"n{(number - 1) // fanout}"]
        is_done = number < count // 2
        node = Node(
            node_id=f"n{number}",
            parent_id=parent.node_id,
            title=f"Action number {number} with a title of quite some length",
            difficulty=1 + number % 5,
            priority=round((number * 37 % 100) / 100, 2),
            state=("pruned" if number % 5 == 0 else "closed") if is_done else "open",
            depth=parent.depth + 1,
            best=score(1 + number % 7 / 10) if is_done and number % 5 else None,
            tries=1 if is_done else 0,
            rounds=6 if is_done else 0,
            fates=(("did_not_build", 2), ("measured", 4)) if is_done else (),
        )
        nodes[node.node_id] = node
        nodes[parent.node_id] = with_child(nodes[parent.node_id], node.node_id)
    return SearchState(nodes=HashTrieMap(nodes))


def with_child(node: Node, child_id: str) -> Node:
    return msgspec.structs.replace(node, children=(*node.children, child_id))


def tree_digest(state: SearchState, *, tokens: int, shown: tuple[str, ...] = ()) -> str:
    return digests.tree_digest(in_order(state.nodes), budget_bytes=4 * tokens, shown=shown)


def ids(digest: str) -> list[str]:
    return re.findall(r"^(n\d+) ", digest, re.MULTILINE)


def hidden(digest: str) -> int:
    return sum(int(count) for count in re.findall(r"^\((\d+) more ", digest, re.MULTILINE))


def test_a_line_tells_state_belief_result_and_failures() -> None:
    digest = tree_digest(tree(12), tokens=AMPLE)
    assert (
        "n2 < n0 | closed | V 0.74 | d3 | Action number 2 with a title of quite some length"
        " | best 1.32x (credit 1.20) | 1 tries, 6 rounds | did_not_build 2, measured 4"
    ) in digest.splitlines()
    assert "n11 < n2 | open | V 0.07 | d2 | Action number 11 with a title of quite some length" in digest.splitlines()


def test_parents_come_before_children_and_new_nodes_at_the_end() -> None:
    before = tree_digest(tree(60), tokens=AMPLE)
    assert ids(before) == [f"n{number}" for number in range(61)]
    state = tree(60)
    newest = Node(node_id="n61", parent_id="n3", title="new", depth=2)
    grown = msgspec.structs.replace(state, nodes=state.nodes.insert("n61", newest))
    assert tree_digest(grown, tokens=AMPLE).startswith(before)


@given(count=st.integers(1, 150), fanout=st.integers(1, 6), budget_tokens=st.integers(60, 4000))
@settings(deadline=None, max_examples=150)
def test_whatever_the_budget_lines_are_whole_and_every_node_is_shown_or_counted(
    count: int, fanout: int, budget_tokens: int
) -> None:
    state = tree(count, fanout=fanout)
    whole = tree_digest(state, tokens=AMPLE)
    digest = tree_digest(state, tokens=budget_tokens)
    assert len(digest) <= budget_tokens * 4 + 120
    assert len(ids(digest)) + hidden(digest) == count + 1
    known = set(whole.splitlines())
    for line in digest.splitlines():
        assert line in known or line.startswith("(") or " … | " in line


def test_titles_of_what_is_done_with_give_way_before_lines_do() -> None:
    state = tree(400)
    whole = tree_digest(state, tokens=AMPLE)
    digest = tree_digest(state, tokens=(len(whole) - 400) // 4)
    assert ids(digest) == ids(whole)
    assert "Action number 3 with a title of …" in digest
    assert "Action number 399 with a title of quite some length" in digest


def test_settled_subtrees_are_counted_before_open_nodes_are_left_out() -> None:
    state = tree(400)
    open_ids = {node.node_id for node in state.nodes.values() if node.state == "open"}
    digest = tree_digest(state, tokens=len(tree_digest(state, tokens=AMPLE)) // 4 - 1500)
    assert open_ids <= set(ids(digest))
    assert re.search(r"^\(\d+ more below n\d+: \d+ closed", digest, re.MULTILINE)


def test_the_root_and_nodes_that_are_asked_for_stay() -> None:
    state = tree(400)
    digest = tree_digest(state, tokens=300, shown=("n101", "n102"))
    assert {"n0", "n101", "n102"} <= set(ids(digest))
