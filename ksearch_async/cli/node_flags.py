"""The options of `ksearch coder`, `builder` and `evaluator`, and what is common to the three commands."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from actors.llm.base import ReasoningEffort
from ksearch_async.cli.operations import OperationFlags
from ksearch_async.config import KernelLanguage, RunConfig
from ksearch_async.nodes import GRACE_S, NodeTerms
from ksearch_async.refusals import refusal
from ksearch_async.resolve import resolve_config
from ksearch_async.runs import check_writable

SERVER = Parameter(group=Group("Server", sort_key=1))
NODE = Parameter(group=Group("Node", sort_key=2))
MODEL = Parameter(group=Group("Model", sort_key=3))

MOST_SLOTS = 1024
DEFAULT_ARTIFACTS = Path("~/.cache/ksearch/artifacts")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NodeFlags:
    """What every node is started with."""

    nats: Annotated[str | None, SERVER] = None
    """Address of the NATS server, `nats://HOST:4222` (several of a cluster with commas). [env: KSEARCH_NATS]"""
    credentials: Annotated[Path | None, SERVER] = None
    """File that says who this node is to the server. [env: KSEARCH_NATS_CREDENTIALS]"""
    slots: Annotated[int | None, NODE] = None
    """Jobs done at once. [default: 2; of a coder 8]"""
    node_name: Annotated[str | None, NODE] = None
    """How the node is called; a suffix makes it unique. [default: role, host and process id]"""
    grace: Annotated[float, NODE] = GRACE_S
    """Seconds for finishing what it has when it is asked to leave; the rest is handed back."""
    exit_when_idle: Annotated[float | None, NODE] = None
    """Leave after so many seconds without a job."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DeviceFlags:
    """What builders and evaluators work with."""

    device: Annotated[str, NODE] = "cpu"
    """`cpu`; `cuda:0` and so on: a GPU of this host; or `simulated[:SECONDS]`: nothing is run, verdicts follow from a
    candidate's hash after so long."""
    language: Annotated[tuple[KernelLanguage, ...], Parameter(group=NODE.group, negative="", show_default=False)] = ()
    """What is served; may be given several times. [default: what this host can do]"""
    isolation: Annotated[Literal["auto", "strict"], NODE] = "auto"
    """How candidates are kept from this host: `auto`, by what it has; `strict`, not run unless it has Landlock or a
    private root, seccomp, and no network."""
    artifacts: Annotated[Path | None, NODE] = None
    """Folder that keeps what was built, 2 GiB at most; processes of a host may share it.
    [default: ~/.cache/ksearch/artifacts]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelFlags:
    """Which model a coder asks: the flags of `ksearch run`."""

    tier: Annotated[str | None, NODE] = None
    """Write for runs that ask for this tier. [default: default]"""
    model: Annotated[str | None, MODEL] = None
    """The endpoint's name of the model that writes."""
    base_url: Annotated[str | None, MODEL] = None
    """Address of an OpenAI-compatible endpoint."""
    model_kind: Annotated[Literal["auto", "offline", "chat", "responses"] | None, MODEL] = None
    """`auto` asks an endpoint if a model is named, and the built-in rules if not; `chat` and `responses` are how
    endpoints are asked. [default: auto]"""
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
    seed: Annotated[int | None, MODEL] = None
    """The built-in rules' answers follow from it. [default: 0]"""
    latency: Annotated[float, MODEL] = 0.0
    """Seconds that every answer of the built-in rules takes, to stand in for an endpoint."""


PLAIN_NODE = NodeFlags()
PLAIN_DEVICE = DeviceFlags()
PLAIN_MODEL = ModelFlags()
PLAIN_OPERATIONS = OperationFlags()


def settings_of(node: NodeFlags, model: ModelFlags = PLAIN_MODEL) -> RunConfig:
    """Return the settings that nodes share with runs: flags, and `KSEARCH_…` variables where a flag is not given.

    Raises:
        ConfigError: what cannot be used.
    """
    flags = {
        "nats": node.nats,
        "tier": model.tier,
        "model": model.model,
        "base-url": model.base_url,
        "model-kind": model.model_kind,
        "timeout": model.timeout,
        "temperature": model.temperature,
        "max-answer-tokens": model.max_answer_tokens,
        "reasoning-effort": model.reasoning_effort,
        "llm-seed": model.llm_seed,
        "structured": model.structured,
        "early-stop": model.early_stop,
        "mistakes": model.mistakes,
        "seed": model.seed,
    }
    return resolve_config("node", environment=os.environ, flags=flags)


def terms_of(node: NodeFlags) -> NodeTerms:
    """Return how long the node stays.

    Raises:
        ConfigError: names the flag.
    """
    if not (isfinite(node.grace) and node.grace >= 0):
        raise refusal(f"--grace: expected seconds, not {node.grace!r}")
    idle = node.exit_when_idle
    if idle is not None and not (isfinite(idle) and idle > 0):
        raise refusal(f"--exit-when-idle: expected seconds above 0, not {idle!r}")
    return NodeTerms(grace_s=node.grace, idle_s=idle)


def slots_of(node: NodeFlags, usual: int) -> int:
    """Return how many jobs are done at once.

    Raises:
        ConfigError: it is no such number.
    """
    slots = usual if node.slots is None else node.slots
    if not 1 <= slots <= MOST_SLOTS:
        raise refusal(f"--slots: expected 1 to {MOST_SLOTS}, not {slots}")
    return slots


def artifacts_of(device: DeviceFlags) -> Path:
    """Return the folder that keeps what was built.

    Raises:
        ConfigError: it cannot be written.
    """
    folder = (device.artifacts or DEFAULT_ARTIFACTS).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder)
    except OSError as error:
        raise refusal(f"cannot write to --artifacts {str(folder)!r}: {error.strerror}") from error
    return folder
