"""Details of a run for the page: a node, a candidate, the costs, the task."""

from __future__ import annotations

import msgspec

from actors.planner.core.state import Node
from ksearch_async.fleet.status import Roster
from ksearch_async.fleet.status import Run as ListedRun
from ksearch_async.runs.candidates import archive_of
from ksearch_async.runs.run import Run, Spend, Told, taken
from messages.base import KsearchError
from messages.events import CandidateEvaluated
from messages.models import Lineup
from messages.presence import Presence
from messages.settings import SearchSettings
from messages.tasks import SourceFile, Target, TaskDescription, TaskSpec
from messages.verdicts import DidNotBuild


class UnknownPartError(KsearchError):
    """The run has no such part."""


class NodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A node, with the coders' questions and answers for it."""

    node: Node
    attempts: tuple[Told, ...]


class CandidateDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, with its verdicts."""

    candidate_id: str
    language: str
    entry_point: str
    files: tuple[SourceFile, ...]
    build_log: str
    did_not_build: str
    """The compiler's first error; empty: it built, or was never tried."""
    verdicts: tuple[CandidateEvaluated, ...]
    node_id: str
    """Node of its attempt; empty while it has no outcome."""
    round: int


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of some answers."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    latency_s: float
    """Sum over all answers."""
    cost_usd: float | None
    """Null: a price is not known."""
    known_usd: float
    """Cost of the answers with a known price."""
    unpriced_calls: int


class ModelCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of one model in one role."""

    role: str
    model: str
    costs: Costs


class NodeCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of coders for one action."""

    node_id: str
    title: str
    costs: Costs


class CostDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Cost of a run's models."""

    total: Costs
    models: tuple[ModelCosts, ...]
    """All models, also those that were never called."""
    nodes: tuple[NodeCosts, ...]


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A run's task and settings."""

    run_id: str
    task: TaskSpec
    description: TaskDescription
    settings: SearchSettings
    """The current settings."""
    target: Target
    lineup: Lineup
    seed: int


def node_details(run: Run, node_id: str) -> NodeDetails:
    """Return a node, with its attempts.

    Raises:
        UnknownPartError: there is none.
    """
    node = run.state.nodes.get(node_id)
    if node is None:
        raise _unknown("node", node_id)
    return NodeDetails(node=node, attempts=tuple(archive_of(run).told(node_id)))


def candidate_details(run: Run, candidate_id: str) -> CandidateDetails:
    """Return a candidate, with its verdicts.

    Raises:
        UnknownPartError: there is none.
    """
    archive = archive_of(run)
    candidate = archive.texts.find(candidate_id)
    if candidate is None:
        raise _unknown("candidate", candidate_id)
    outcomes = [built.outcome for built in archive.builds.get(candidate_id, ())]
    tried = next((one for one in run.tried if one.fact.candidate_id == candidate_id), None)
    return taken(
        CandidateDetails,
        candidate,
        build_log=next((outcome.log for outcome in reversed(outcomes) if outcome.log), ""),
        did_not_build=next((outcome.reason for outcome in outcomes if isinstance(outcome, DidNotBuild)), ""),
        verdicts=tuple(evaluated for evaluated, _ in archive.verdicts.get(candidate_id, ())),
        node_id=tried.node_id if tried else "",
        round=tried.fact.round if tried else 0,
    )


def cost_details(run: Run, _run_id: str = "") -> CostDetails:
    """Return the costs of a run's models so far."""
    spending, nodes = run.spending(), run.state.nodes
    return CostDetails(
        total=_costs(spending.of_role("planner").plus(spending.of_role("coder"))),
        models=tuple(
            ModelCosts(role=role, model=model, costs=_costs(spend))
            for (role, model), spend in sorted(spending.by_model.items(), key=lambda item: item[0])
        ),
        nodes=tuple(
            NodeCosts(node_id=node_id, title=nodes[node_id].title if node_id in nodes else "", costs=_costs(spend))
            for node_id, spend in spending.by_node.items()
        ),
    )


def task_details(run: Run, run_id: str) -> TaskDetails:
    """Return a run's task.

    Raises:
        UnknownPartError: it has not begun.
    """
    started = run.started
    if started is None:
        raise _unknown("task", run_id)
    return taken(TaskDetails, started, settings=run.settings, lineup=run.lineup)


class NodeHere(msgspec.Struct, frozen=True, kw_only=True):
    """A process that takes part in the runs of a server."""

    presence: Presence
    age_s: float
    """Seconds since it last announced its presence."""
    unfit: bool
    """True if it takes no jobs because it cannot do them, or left for that reason."""


class NodesHere(msgspec.Struct, frozen=True, kw_only=True):
    """Processes of a server, and its runs."""

    at: str
    """ISO 8601, UTC."""
    nodes: tuple[NodeHere, ...]
    runs: tuple[ListedRun, ...]
    unreadable: tuple[str, ...]
    """Keys of entries that this release cannot read."""


def roster_told(roster: Roster) -> NodesHere:
    """Return the nodes and runs of a server for the page."""
    return taken(NodesHere, roster, nodes=tuple(taken(NodeHere, one, unfit=one.is_unfit) for one in roster.nodes))


def _costs(spend: Spend) -> Costs:
    return taken(
        Costs,
        spend.usage,
        latency_s=round(sum(spend.latencies_s), 3),
        cost_usd=spend.known_usd,
        known_usd=spend.cost_usd,
        unpriced_calls=spend.unpriced_calls,
    )


def _unknown(kind: str, name: str) -> UnknownPartError:
    return UnknownPartError(f"this run has no {kind} {name!r}")
