"""`ksearch planner`: leads runs of a server that no planner leads."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from actors.llm.base import Model
from actors.planner.leadership import LeaseTerms
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node import (
    MODEL,
    NODE,
    PLAIN_OPERATIONS,
    SERVER,
    AskedFlags,
    NodeFlags,
    OperationFlags,
    Order,
    given_settings,
    start_node,
    terms_of,
)
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import address_of
from ksearch_async.fleet.nodes import presence_of
from ksearch_async.fleet.standby import Planning
from ksearch_async.runs.folder import check_writable, run_id_of
from ksearch_async.settings.models import dialect_of, model_name, open_model
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.run_config import RunConfig, planner_settings

_RENEWALS = 0.3
"""Share of a lease's time after which it is renewed."""
_SHORTEST_S, _LONGEST_S = 2, 3600


def planner_order(runs: tuple[str, ...], work: PlannerFlags, operations: OperationFlags) -> Order:
    """Return a planner that is to be."""
    settings = resolve_config("node", environment=os.environ, flags=given_settings(work))
    terms = terms_of(NodeFlags(exit_when_idle=work.exit_when_idle))
    plans = planner_settings(settings.model, os.environ)
    dialect = dialect_of(plans, os.environ)
    if work.latency and dialect != "offline":
        raise refusal("--latency is for the built-in rules: an endpoint takes its own time", "leave it out")

    def opened(seed: int) -> AbstractAsyncContextManager[Model]:
        return open_model(settings.model, os.environ, seed=seed, latency_s=work.latency)

    planning = Planning(
        opened,
        runs_dir=_runs_dir(settings),
        address=address_of(settings.nats, os.environ),
        model=settings.model,
        only=frozenset(map(run_id_of, runs)),
        terms=_lease_of(work),
    )

    return Order(
        presence=presence_of("planner", name=work.node_name, slots=1, model=model_name(plans, os.environ)),
        terms=terms,
        servers=settings.nats,
        credentials=work.credentials,
        operations=operations,
        open_work=lambda: nullcontext(planning),
    )


def _lease_of(work: PlannerFlags) -> LeaseTerms:
    if not _SHORTEST_S <= work.lease <= _LONGEST_S:
        raise refusal(f"--lease: expected {_SHORTEST_S} to {_LONGEST_S} seconds, not {work.lease}")
    return LeaseTerms(ttl_s=work.lease, renew_s=min(3.0, work.lease * _RENEWALS))


def _runs_dir(settings: RunConfig) -> Path:
    folder = Path(settings.runs_dir).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder)
    except OSError as error:
        hint = "choose another folder with --runs-dir"
        raise refusal(f"cannot write to {str(folder)!r}: {error.strerror}", hint) from error
    return folder


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlannerFlags(AskedFlags):
    """Settings of a planner node."""

    nats: Annotated[str | None, SERVER] = None
    """Address of the NATS server, `nats://HOST:4222`; for a cluster several, separated by commas. [env:
    KSEARCH_NATS]"""
    credentials: Annotated[Path | None, SERVER] = None
    """File with this node's credentials for the server. [env: KSEARCH_NATS_CREDENTIALS]"""
    runs_dir: Annotated[str | None, NODE] = None
    """Folder in which the folders of the runs that it leads are made. [default: runs]"""
    node_name: Annotated[str | None, NODE] = None
    """Name of the node; a suffix makes it unique. [default: role, host and process id]"""
    lease: Annotated[int, NODE] = 10
    """Seconds without a sign of life of its planner after which a run is taken over."""
    exit_when_idle: Annotated[float | None, NODE] = None
    """Leave after this many seconds without a run to lead."""
    model: Annotated[str | None, MODEL] = None
    """Name of the planner's model at the endpoint."""
    concurrency: Annotated[int | None, MODEL] = None
    """Model calls in flight at once, for each run. [default: 8]"""


PLAIN_PLANNER = PlannerFlags()


def planner_command(
    *runs: str,
    work: PlannerFlags = PLAIN_PLANNER,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Lead runs.

    Args:
        runs: Ids of the runs to stand by for. [default: all runs of the server]
        work: The server and the model.
        operations: Logs and metrics.
        as_json: Print one JSON object after leaving.
    """
    return start_node(planner_order(runs, work, operations), as_json=as_json)
