"""Orders of people to a search: which can be carried out, and the facts that each yields, if only a refusal.

An order overrides scores and the model's edits (`contradiction`), but not the rules of the tree: an action below a node
without a correct candidate waits, pinned or not.
"""

from __future__ import annotations

import re
import unicodedata
from math import isfinite
from typing import assert_never

from actors.planner.core.evolve import Step
from actors.planner.core.state import Node, SearchState
from messages.base import ROOT, copied
from messages.edits import Edit, Insert, Prune, Split, Update
from messages.events import RunStarted
from messages.facts import EditsApplied, Fact, NodeInserted, NodePruned, NodeUpdated
from messages.settings import Heritage
from messages.steering import (
    Boost,
    CandidateGiven,
    Forbid,
    Forget,
    Inject,
    Instruct,
    InstructionForgotten,
    InstructionGiven,
    NodeBoosted,
    NodeForbidden,
    NodePinned,
    NodeReleased,
    Pin,
    Release,
    Steering,
    SteeringRefused,
)
from messages.tasks import Candidate

MAX_INSTRUCTION_CHARS = 4000
MAX_INSTRUCTIONS = 32
"""Most instructions in force at once."""
MAX_BOOST = 1.0
"""Largest boost: the range of V."""
MAX_CANDIDATE_BYTES = 1 << 19
"""Largest injected candidate; a job contains several programs and may be at most twice as large."""
_MAX_TITLE_CHARS = 120
_MAX_REASON_CHARS = 500
_FILE_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.\.?(?:/|$))[\w\-./+]{1,200}", re.ASCII)
_NO_TEXT = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Unicode categories of control characters, direction marks and surrogates."""


class _RefusedError(Exception):
    """The order cannot be carried out; the text says why."""


def carry_out(step: Step, order: Steering) -> None:
    """Apply the facts of an order, or a refusal if it cannot be carried out."""
    try:
        facts = _facts_of(step.state, order)
    except _RefusedError as error:
        facts = (SteeringRefused(reason=str(error)),)
    for fact in facts:
        step.take(fact)


def inherit(step: Step, started: RunStarted) -> None:
    """Insert a new run's starting points into its tree: another run's world model, and a candidate."""
    if started.heritage is not None:
        _take_over(step, started.heritage)
    if started.solution is not None:
        carry_out(step, Inject(candidate=started.solution, title="The candidate that the run began with"))


def contradiction(state: SearchState, edit: Edit) -> str | None:
    """Return the order of a person that an edit would undo; None if there is none."""
    if isinstance(edit, Insert):
        node = state.nodes.get(edit.parent)
        return _ruled_out(node) if node is not None and node.barred else None
    node = state.nodes.get(edit.node)
    if node is None or node.node_id == ROOT:
        return None
    if node.barred:
        return None if isinstance(edit, Prune) else _ruled_out(node)
    if isinstance(edit, Update):
        is_rewritten = edit.title is not None or edit.description is not None
        keeps = is_rewritten and node.origin == "person"
        return f"{node.node_id!r} is a person's: its title and description stay" if keeps else None
    if node.pinned or node.boost > 0:
        return f"{node.node_id!r} was {'pinned' if node.pinned else 'boosted'} by a person: it stays in the tree"
    if isinstance(edit, Split) and node.origin == "person":
        return f"{node.node_id!r} is a person's: it cannot be split"
    return None


def cleaned(text: str) -> str:
    """Return a text without control characters."""
    kept = (letter for letter in text.expandtabs(4) if letter == "\n" or unicodedata.category(letter) not in _NO_TEXT)
    return "".join(kept).strip()


def _facts_of(state: SearchState, order: Steering) -> tuple[Fact, ...]:
    match order:
        case Instruct():
            return (_instruct(state, order),)
        case Forget(number=number):
            if not any(instruction.number == number for instruction in state.instructions):
                raise _RefusedError(f"there is no instruction {number}")
            return (InstructionForgotten(number=number),)
        case Inject():
            return _inject(state, order)
        case Pin() | Boost() | Forbid() | Release():
            return (_steer_node(_action(state, order.node_id), state, order),)
        case _:
            assert_never(order)


def _instruct(state: SearchState, order: Instruct) -> InstructionGiven:
    text = cleaned(order.text)
    if not text:
        raise _RefusedError("the instruction is empty")
    if len(text) > MAX_INSTRUCTION_CHARS:
        raise _RefusedError(f"the instruction has {len(text)} characters; at most {MAX_INSTRUCTION_CHARS} are taken")
    if len(state.instructions) >= MAX_INSTRUCTIONS:
        raise _RefusedError(f"{len(state.instructions)} instructions hold already: have one forgotten first")
    return InstructionGiven(number=state.instructions_given + 1, text=text, to=order.to)


def _steer_node(node: Node, state: SearchState, order: Pin | Boost | Forbid | Release) -> Fact:
    match order:
        case Pin():
            return _pin(node, state)
        case Boost(by=by):
            if not isfinite(by) or abs(by) > MAX_BOOST:
                raise _RefusedError(f"a score can be changed by {-MAX_BOOST:g} to {MAX_BOOST:g}, not by {by:g}")
            if node.state in ("closed", "pruned"):
                raise _RefusedError(f"node {node.node_id!r} is {node.state}: only an open node has a score")
            return NodeBoosted(node_id=node.node_id, by=by)
        case Forbid(reason=reason):
            if node.forbidden is not None:
                raise _RefusedError(f"node {node.node_id!r} is forbidden already")
            return NodeForbidden(node_id=node.node_id, reason=_line(reason)[:_MAX_REASON_CHARS])
        case Release():
            return _release(node)


def _pin(node: Node, state: SearchState) -> Fact:
    if node.barred:
        raise _RefusedError(f"{_ruled_out(node)}: release it first")
    if node.state == "in_flight":
        raise _RefusedError(f"node {node.node_id!r} is in flight already")
    if node.state == "closed":
        raise _RefusedError(f"node {node.node_id!r} is closed, it has a candidate: pin an open node below it")
    parent = state.node(node.parent_id)
    if parent.state == "pruned" and not parent.given_up:
        raise _RefusedError(f"{node.node_id!r} lies below {parent.node_id!r}, which was pruned: pin that one first")
    return NodePinned(node_id=node.node_id)


def _release(node: Node) -> Fact:
    if node.forbidden is None and not node.pinned and not node.boost:
        below = ": it lies below a node that is forbidden, release that one" if node.barred else ""
        raise _RefusedError(f"nothing was ordered for node {node.node_id!r}{below}")
    return NodeReleased(node_id=node.node_id)


def _inject(state: SearchState, order: Inject) -> tuple[Fact, ...]:
    parent = state.nodes.get(order.node_id)
    if parent is None:
        raise _RefusedError(f"node {order.node_id!r} does not exist")
    if parent.state == "pruned" and not parent.given_up:
        raise _RefusedError(f"node {parent.node_id!r} was pruned: {parent.prune_reason}")
    if parent.barred:
        raise _RefusedError(f"{_ruled_out(parent)}: release it first")
    _check_candidate(order.candidate)
    title = _line(order.title)[:_MAX_TITLE_CHARS] or "A kernel of one's own"
    node_id = f"n{len(state.nodes)}"
    inserted = NodeInserted(
        node_id=node_id,
        parent_id=parent.node_id,
        title=title,
        description=cleaned(order.description)[:MAX_INSTRUCTION_CHARS],
        difficulty=1,
        priority=0.5,
        origin="person",
    )
    given = CandidateGiven(node_id=node_id, candidate_id=order.candidate.candidate_id)
    return inserted, given, NodePinned(node_id=node_id)


def _check_candidate(candidate: Candidate) -> None:
    if not candidate.files or not all(_FILE_PATH.fullmatch(file.path) for file in candidate.files):
        raise _RefusedError("the candidate's files need plain relative paths")
    size = sum(len(file.text.encode("utf-8", "surrogatepass")) for file in candidate.files)
    if size > MAX_CANDIDATE_BYTES:
        raise _RefusedError(f"the candidate has {size} bytes; at most {MAX_CANDIDATE_BYTES} are taken")


def _take_over(step: Step, heritage: Heritage) -> None:
    first = len(step.state.nodes)
    changed: list[NodeInserted | NodeUpdated | NodePruned] = []
    given: list[CandidateGiven] = []
    for place, node in enumerate(heritage.nodes):
        node_id = f"n{first + place}"
        parent_id = f"n{first + node.parent}" if node.parent >= 0 else ROOT
        changed.append(copied(NodeInserted, node, node_id=node_id, parent_id=parent_id))
        if node.pruned:
            changed.append(NodePruned(node_id=node_id, reason=node.pruned))
        elif node.candidate is not None:
            given.append(CandidateGiven(node_id=node_id, candidate_id=node.candidate.candidate_id))
    questions = heritage.open_questions
    step.take(EditsApplied(job_id="", changes=tuple(changed), summary=heritage.summary, open_questions=questions))
    for fact in given:
        step.take(fact)


def _action(state: SearchState, node_id: str) -> Node:
    if node_id not in state.nodes:
        raise _RefusedError(f"node {node_id!r} does not exist")
    if node_id == ROOT:
        raise _RefusedError(f"{ROOT!r} is the root, and no action: name a node below it")
    return state.node(node_id)


def _ruled_out(node: Node) -> str:
    why = f": {node.forbidden}" if node.forbidden else ""
    what = "was forbidden" if node.forbidden is not None else "lies below a node that was forbidden"
    return f"node {node.node_id!r} {what} by a person{why}"


def _line(text: str) -> str:
    return " ".join(cleaned(text).split())
