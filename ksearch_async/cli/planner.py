"""`ksearch planner`: leads runs of a server that no planner leads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from actors.llm.base import Model, ReasoningEffort
from actors.planner.lease import LeaseTerms
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node import MODEL, NODE, PLAIN_OPERATIONS, SERVER, NodeFlags, OperationFlags, Order, terms_of
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import address_of
from ksearch_async.fleet.nodes import Work, presence_of
from ksearch_async.fleet.standby import Planning
from ksearch_async.runs.folder import check_writable, run_id_of
from ksearch_async.settings.models import dialect_of, model_name, open_model
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.table import RunConfig, planner_settings

_RENEWALS = 0.3
"""Part of a lease's time after which it is renewed."""
_SHORTEST_S, _LONGEST_S = 2, 3600


def planner_order(runs: tuple[str, ...], work: PlannerFlags, operations: OperationFlags) -> Order:
    """Return a planner that is to be.

    Raises:
        ConfigError: names what cannot be used.
    """
    settings = _settings_of(work)
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

    @asynccontextmanager
    async def open_work() -> AsyncIterator[Work]:
        yield planning

    return Order(
        presence=presence_of("planner", name=work.node_name, slots=1, model=model_name(plans, os.environ)),
        terms=terms,
        servers=settings.nats,
        credentials=work.credentials,
        operations=operations,
        open_work=open_work,
    )


def _settings_of(work: PlannerFlags) -> RunConfig:
    flags = {
        "nats": work.nats,
        "runs-dir": work.runs_dir,
        "model": work.model,
        "base-url": work.base_url,
        "model-kind": work.model_kind,
        "concurrency": work.concurrency,
        "timeout": work.timeout,
        "temperature": work.temperature,
        "max-answer-tokens": work.max_answer_tokens,
        "reasoning-effort": work.reasoning_effort,
        "llm-seed": work.llm_seed,
        "structured": work.structured,
        "early-stop": work.early_stop,
        "mistakes": work.mistakes,
    }
    return resolve_config("node", environment=os.environ, flags=flags)


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
class PlannerFlags:
    """Settings of a planner node."""

    nats: Annotated[str | None, SERVER] = None
    """Address of the NATS server, `nats://HOST:4222` (several of a cluster with commas). [env: KSEARCH_NATS]"""
    credentials: Annotated[Path | None, SERVER] = None
    """File that says who this node is to the server. [env: KSEARCH_NATS_CREDENTIALS]"""
    runs_dir: Annotated[str | None, NODE] = None
    """Folder that the folders of led runs are made in. [default: runs]"""
    node_name: Annotated[str | None, NODE] = None
    """Name of the node; a suffix makes it unique. [default: role, host and process id]"""
    lease: Annotated[int, NODE] = 10
    """Seconds of a planner's silence after which another one takes its run."""
    exit_when_idle: Annotated[float | None, NODE] = None
    """Leave after this many seconds without a run to lead."""
    model: Annotated[str | None, MODEL] = None
    """The endpoint's name of the model that plans."""
    base_url: Annotated[str | None, MODEL] = None
    """Address of an OpenAI-compatible endpoint."""
    model_kind: Annotated[Literal["auto", "offline", "chat", "responses"] | None, MODEL] = None
    """`auto` asks an endpoint if a model is named, and the built-in rules if not; `chat` and `responses` are how
    endpoints are asked. [default: auto]"""
    concurrency: Annotated[int | None, MODEL] = None
    """Model calls in flight at once, for each run. [default: 8]"""
    timeout: Annotated[float | None, MODEL] = None
    """Seconds that one model call may take. [default: 600]"""
    temperature: Annotated[float | None, MODEL] = None
    """Of the model's answers; without it and the next two the endpoint decides."""
    max_answer_tokens: Annotated[int | None, MODEL] = None
    """Tokens that one answer may have, hidden reasoning included."""
    reasoning_effort: Annotated[ReasoningEffort | None, MODEL] = None
    """How much the model may think before it answers."""
    llm_seed: Annotated[int | None, MODEL] = None
    """Seed of the endpoint's draws, where it has such."""
    structured: Annotated[Literal["auto", "on", "off"] | None, MODEL] = None
    """Have the endpoint hold the planner's answers to a JSON schema; `auto`: if `ksearch doctor --model` found that it
    can. [default: auto]"""
    early_stop: Annotated[bool | None, MODEL] = None
    """Stream answers, and do not read on long after they are whole. [default: yes]"""
    mistakes: Annotated[float | None, MODEL] = None
    """Share of the built-in rules' answers that are spoiled as models spoil theirs, 0 to 1. [default: 0]"""
    latency: Annotated[float, MODEL] = 0.0
    """Seconds that every answer of the built-in rules takes, to stand in for an endpoint."""


PLAIN_PLANNER = PlannerFlags()


def planner_command(
    *runs: str,
    work: PlannerFlags = PLAIN_PLANNER,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Lead runs.

    Args:
        runs: Ids of the runs to stand by for; without any, for all of the server.
        work: Where, and with which model.
        operations: Logs and metrics.
        as_json: Print one JSON object after leaving.
    """
    from ksearch_async.cli.node import start_node  # noqa: PLC0415 - `--help` needs no bus

    return start_node(planner_order(runs, work, operations), as_json=as_json)
