"""What the planner's model has been told, as a fold: the tree as it was last written whole, and what was added since.

A prompt repeats all of it, so that one prompt begins as the one before ended: endpoints read such a beginning once. So
nothing that was told is changed later; what is new is added, a node's line again where it is another by now, and when
that has grown too long the whole tree is written anew (`PlanRequested.renews`).
"""

from __future__ import annotations

from msgspec.structs import replace

from actors.planner.core.branch import Report
from actors.planner.core.state import Node, SearchState, Snapshot, TokenRate, Told, in_order, number_of
from messages.base import Usage
from messages.facts import PlanRequested

BYTES_PER_TOKEN = 4.0
"""Of prompts, before any was counted: English prose has 4 to 5, code 3 to 4."""
_LINE, _REPORT, _ATTEMPT = 100, 400, 160
"""About how many characters a node's line takes besides its title, a report besides its action, and an attempt."""
_LEAST, _MOST = 12_000, 32_000
_SHARE = 0.5
"""The tree is written anew once what was added is longer than this share of it, within `_LEAST` and `_MOST` characters:
rarely, since all that follows it is then read anew; not too rarely, since what was added is longer than the tree."""


def renews(state: SearchState) -> bool:
    """Say whether the next call is to have the whole tree written anew."""
    if state.snapshot is None:
        return True
    changed = sum(_line_size(state.nodes[node_id]) for node_id in state.changed_ids)
    added = sum(told.size for told in state.told) + changed + sum(map(_report_size, _untold(state)))
    return added > min(_MOST, max(_LEAST, _SHARE * state.snapshot.size))


def with_told(state: SearchState, fact: PlanRequested) -> SearchState:
    """Return the state with what this call tells."""
    reports = tuple(report for report in _untold(state) if report.branch_id in fact.branch_ids)
    changed = [] if fact.renews else [state.nodes[key] for key in sorted(state.changed_ids, key=number_of)]
    told = _told(state, tuple(changed), reports)
    spoken_of = {report.branch_id for report in reports}
    state = replace(
        state,
        reports=tuple(
            replace(report, told=True) if report.branch_id in spoken_of else report for report in state.reports
        ),
        changed_ids=type(state.changed_ids)(),
        told=(told,) if fact.renews else (*state.told, told),
    )
    return replace(state, snapshot=_snapshot(state)) if fact.renews else state


def as_told(state: SearchState, request: PlanRequested) -> tuple[Snapshot, tuple[Told, ...]]:
    """Return the tree as it was last written whole, and what was added since, this call included.

    Args:
        state: the search right after the request.
        request: the call; what it tells of is taken from it where the state has no record of what was told.
    """
    if state.snapshot is not None:
        return state.snapshot, state.told
    reports = tuple(report for report in state.reports if report.branch_id in request.branch_ids)
    return _snapshot(state), (_told(state, (), reports),)


def with_rate(state: SearchState, model: str, prompt_bytes: int, usage: Usage) -> SearchState:
    """Return the state with one more prompt of the planner's counted, if its endpoint did that."""
    if not prompt_bytes or not usage.prompt_tokens or usage.estimated_calls:
        return state
    known = next((rate for rate in state.rates if rate.model == model), TokenRate(model=model))
    rate = replace(known, prompt_bytes=known.prompt_bytes + prompt_bytes, tokens=known.tokens + usage.prompt_tokens)
    return replace(state, rates=(rate, *(other for other in state.rates if other.model != model)))


def bytes_per_token(state: SearchState) -> float:
    """Return how many bytes a token of a prompt has, as the model that answered last counts them."""
    return state.rates[0].prompt_bytes / state.rates[0].tokens if state.rates else BYTES_PER_TOKEN


def _untold(state: SearchState) -> tuple[Report, ...]:
    return tuple(report for report in state.reports if not report.told)


def _told(state: SearchState, nodes: tuple[Node, ...], reports: tuple[Report, ...]) -> Told:
    return Told(
        round=state.rounds,
        nodes=nodes,
        reports=reports,
        subjects=tuple(state.node(report.node_id) for report in reports),
        incumbent=state.incumbent,
        size=sum(map(_line_size, nodes)) + sum(map(_report_size, reports)),
    )


def _snapshot(state: SearchState) -> Snapshot:
    nodes = state.nodes
    return Snapshot(
        nodes=nodes,
        round=state.rounds,
        incumbent_id=state.incumbent.node_id if state.incumbent else None,
        bytes_per_token=bytes_per_token(state),
        size=sum(map(_line_size, in_order(nodes))),
    )


def _line_size(node: Node) -> int:
    return _LINE + len(node.title)


def _report_size(report: Report) -> int:
    return _REPORT + sum(_ATTEMPT + sum(map(len, attempt.evidence)) for attempt in report.attempts)


def recomputed_changes(state: SearchState) -> set[str]:
    """Return which nodes are told otherwise than they were last told, from the nodes themselves; for tests."""
    told: dict[str, Node] = dict(state.snapshot.nodes.items()) if state.snapshot else {}
    for one in state.told:
        told |= {node.node_id: node for node in one.nodes}
    return {
        node_id
        for node_id, node in state.nodes.items()
        if node_id not in told or told[node_id].told_form != node.told_form
    }
