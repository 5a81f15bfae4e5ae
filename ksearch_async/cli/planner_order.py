"""What `ksearch planner` is told, checked and turned into a node that is to be."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from actors.llm.base import Model
from actors.planner.lease import LeaseTerms
from ksearch_async.cli.node import Order
from ksearch_async.cli.node_flags import NodeFlags, terms_of
from ksearch_async.cli.operations import OperationFlags
from ksearch_async.cli.planner import PlannerFlags
from ksearch_async.config import RunConfig
from ksearch_async.connection import address_of
from ksearch_async.models import dialect_of, model_name, open_model
from ksearch_async.nodes import Work, presence_of
from ksearch_async.refusals import refusal
from ksearch_async.resolve import resolve_config
from ksearch_async.role_settings import planner_settings
from ksearch_async.runs import check_writable, run_id_of
from ksearch_async.standby import Planning

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
