"""What a page about a part of a run shows: a node, a candidate, the costs, the task. Texts are read when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import anyio.to_thread
import msgspec

from actors.planner.core.state import Node
from ksearch_async.fleet.status import Roster
from ksearch_async.runs.attempts import Told, read_attempts
from ksearch_async.runs.costs import Spend, Spending, spending_of
from ksearch_async.views.web.runs import OpenedRun, candidates_of
from messages.base import KsearchError, Role
from messages.codec import Record
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten
from messages.models import TASK, Lineup
from messages.presence import Presence, RunCard
from messages.settings import SearchSettings
from messages.tasks import SourceFile, Target, TaskDescription, TaskSpec
from messages.verdicts import DidNotBuild


class UnknownPartError(KsearchError):
    """The run has no such thing."""


class NodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A node, and what coders were asked and answered for it."""

    node: Node
    attempts: tuple[Told, ...]


class CandidateDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, and what became of it."""

    candidate_id: str
    language: str
    entry_point: str
    files: tuple[SourceFile, ...]
    build_log: str
    did_not_build: str
    """The compiler's first error; empty: it built, or was never tried."""
    verdicts: tuple[CandidateEvaluated, ...]
    node_id: str
    """Empty while it has no outcome."""
    round: int


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What answers cost."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    latency_s: float
    """Of all answers together."""
    cost_usd: float | None
    """Null: a price is not known."""
    known_usd: float
    """Of the answers whose price is known."""
    unpriced_calls: int


class ModelCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What one model cost in one role."""

    role: str
    model: str
    costs: Costs


class NodeCosts(msgspec.Struct, frozen=True, kw_only=True):
    """What coders cost for one action."""

    node_id: str
    title: str
    costs: Costs


class CostDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's models cost."""

    total: Costs
    models: tuple[ModelCosts, ...]
    """Also those that were never asked."""
    nodes: tuple[NodeCosts, ...]


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is about, and how it searches."""

    run_id: str
    task: TaskSpec
    description: TaskDescription
    settings: SearchSettings
    """As they hold now."""
    target: Target
    lineup: Lineup
    seed: int


async def node_details(opened: OpenedRun, node_id: str) -> NodeDetails:
    """Return a node, with its attempts.

    Raises:
        UnknownPartError: there is none.
        messages.base.BusError: its records cannot be read.
    """
    node = opened.chronicle.state.nodes.get(node_id)
    if node is None:
        raise _unknown("node", node_id)
    index = opened.index
    own = await opened.read(index.of_node[node_id]) if node_id in index.of_node else []
    quoted = {index.origin[source] for source in _sources(own) if source in index.origin}
    others = await opened.read({*index.opening[:1], *quoted})
    attempts = await anyio.to_thread.run_sync(_attempts, [*own, *others], node_id)
    return NodeDetails(node=node, attempts=tuple(attempts))


async def candidate_details(opened: OpenedRun, candidate_id: str) -> CandidateDetails:
    """Return a candidate, with its verdicts.

    Raises:
        UnknownPartError: there is none.
        messages.base.BusError: its records cannot be read.
    """
    index = opened.index
    if candidate_id not in index.origin:
        raise _unknown("candidate", candidate_id)
    places = [index.origin[candidate_id], *index.of_candidate.get(candidate_id, ())]
    bodies = [record.body for record in await opened.read(places)]
    candidate = next(found for body in bodies for found in candidates_of(body) if found.candidate_id == candidate_id)
    outcomes = [body.outcome for body in bodies if isinstance(body, CandidateBuilt)]
    node_id, in_round = index.found_at.get(candidate_id, ("", 0))
    return CandidateDetails(
        candidate_id=candidate_id,
        language=candidate.language,
        entry_point=candidate.entry_point,
        files=candidate.files,
        build_log=next((outcome.log for outcome in reversed(outcomes) if outcome.log), ""),
        did_not_build=next((outcome.reason for outcome in outcomes if isinstance(outcome, DidNotBuild)), ""),
        verdicts=tuple(body for body in bodies if isinstance(body, CandidateEvaluated)),
        node_id=node_id,
        round=in_round,
    )


async def cost_details(opened: OpenedRun) -> CostDetails:
    """Return what a run's models cost so far.

    Raises:
        messages.base.BusError: its records cannot be read.
    """
    records = await opened.read([*opened.index.opening, *opened.index.spending])
    spending = await anyio.to_thread.run_sync(spending_of, records)
    return _costs_told(spending, opened.chronicle.state.nodes)


def task_details(opened: OpenedRun) -> TaskDetails:
    """Return what a run is about.

    Raises:
        UnknownPartError: it has not begun.
    """
    started, state = opened.chronicle.started, opened.chronicle.state
    if started is None:
        raise _unknown("task", opened.run_id)
    return TaskDetails(
        run_id=started.run_id,
        task=started.task,
        description=started.description,
        settings=state.settings if state.run_id else started.settings,
        target=started.target,
        lineup=state.lineup if state.run_id else started.lineup,
        seed=started.seed,
    )


class NodeHere(msgspec.Struct, frozen=True, kw_only=True):
    """A process that takes part in the runs of a server."""

    presence: Presence
    age_s: float
    """Since it last said that it is there."""
    unfit: bool
    """It takes no jobs because it cannot do them, or left for that reason."""


class RunHere(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a server, and who is missing for it."""

    card: RunCard
    age_s: float
    missing: tuple[Role, ...]


class NodesHere(msgspec.Struct, frozen=True, kw_only=True):
    """Who takes part, and in what."""

    at: str
    """ISO 8601, UTC."""
    nodes: tuple[NodeHere, ...]
    runs: tuple[RunHere, ...]
    unreadable: tuple[str, ...]
    """Keys of entries that this release cannot read."""


def roster_told(roster: Roster) -> NodesHere:
    """Return who takes part."""
    return NodesHere(
        at=roster.at,
        nodes=tuple(NodeHere(presence=one.presence, age_s=one.age_s, unfit=one.is_unfit) for one in roster.nodes),
        runs=tuple(RunHere(card=one.card, age_s=one.age_s, missing=one.missing) for one in roster.runs),
        unreadable=roster.unreadable,
    )


def _sources(records: list[Record]) -> Iterator[str]:
    """Yield the candidates whose text was left out of prompts and answers."""
    for record in records:
        if isinstance(record.body, CandidateWritten):
            for quote in (*record.body.prompt_quotes, *record.body.answer_quotes):
                if quote.source != TASK:
                    yield quote.source


def _attempts(records: list[Record], node_id: str) -> list[Told]:
    known = {record.seq: record for record in records}
    return read_attempts(known[seq] for seq in sorted(known)).get(node_id, [])


def _costs_told(spending: Spending, nodes: Mapping[str, Node]) -> CostDetails:
    total = spending.of_role("planner").plus(spending.of_role("coder"))
    return CostDetails(
        total=_costs(total),
        models=tuple(
            ModelCosts(role=role, model=model, costs=_costs(spend))
            for (role, model), spend in sorted(spending.by_model.items(), key=lambda item: item[0])
        ),
        nodes=tuple(
            NodeCosts(node_id=node_id, title=nodes[node_id].title if node_id in nodes else "", costs=_costs(spend))
            for node_id, spend in spending.by_node.items()
        ),
    )


def _costs(spend: Spend) -> Costs:
    usage = spend.usage
    return Costs(
        calls=usage.calls,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        latency_s=round(sum(spend.latencies_s), 3),
        cost_usd=spend.known_usd,
        known_usd=spend.cost_usd,
        unpriced_calls=spend.unpriced_calls,
    )


def _unknown(kind: str, name: str) -> UnknownPartError:
    return UnknownPartError(f"this run has no {kind} {name!r}")
