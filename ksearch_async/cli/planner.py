"""`ksearch planner`: stands by for the runs of a NATS server, and leads those that nobody leads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from actors.llm.base import ReasoningEffort
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.node_flags import MODEL, NODE, PLAIN_OPERATIONS, SERVER
from ksearch_async.cli.operations import OperationFlags


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlannerFlags:
    """What a planner is started with."""

    nats: Annotated[str | None, SERVER] = None
    """Address of the NATS server, `nats://HOST:4222` (several of a cluster with commas). [env: KSEARCH_NATS]"""
    credentials: Annotated[Path | None, SERVER] = None
    """File that says who this node is to the server. [env: KSEARCH_NATS_CREDENTIALS]"""
    runs_dir: Annotated[str | None, NODE] = None
    """Folder that the folders of led runs are made in. [default: runs]"""
    node_name: Annotated[str | None, NODE] = None
    """How the node is called; a suffix makes it unique. [default: role, host and process id]"""
    lease: Annotated[int, NODE] = 10
    """Seconds after which a run is anybody's whose planner is not heard of any more."""
    exit_when_idle: Annotated[float | None, NODE] = None
    """Leave after so many seconds without a run to lead."""
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
        as_json: Print one JSON object when it has left.
    """
    from ksearch_async.cli.node import start_node  # noqa: PLC0415 - `--help` needs no bus
    from ksearch_async.cli.planner_order import planner_order  # noqa: PLC0415

    return start_node(planner_order(runs, work, operations), as_json=as_json)
