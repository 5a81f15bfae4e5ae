"""Processes and runs: entries of the bus that their owners keep fresh and that expire without them.

Keys: `node.<role>.<name>` holds a `Presence`, `run.<run id>` a `RunCard`, `lease.<run id>` the name of the planner.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from messages.base import Language, Message, Role, Usage
from messages.subjects import checked_id
from messages.tasks import Target

NODES = "node."
"""Beginning of the keys under which processes say that they are there."""
RUNS = "run."
"""Beginning of the keys under which planners say which runs they lead."""

WorkerState: TypeAlias = Literal["proving", "ready", "unfit", "leaving", "left"]
"""`proving`: it does a known job first. `unfit`: it could not, and takes none. `leaving`: it finishes what it has."""
RunState: TypeAlias = Literal["running", "paused", "finished"]


class Served(Message, frozen=True, kw_only=True):
    """Jobs that a builder or an evaluator can do: those in this language for exactly this target."""

    language: Language
    target: Target


class Busy(Message, frozen=True, kw_only=True):
    """A job in a process's hands."""

    job_id: str
    run_id: str
    since: str
    """ISO 8601, UTC."""


class Tally(Message, frozen=True, kw_only=True):
    """Work of a process since it started."""

    done: int = 0
    """Jobs with a result."""
    failed: int = 0
    """Jobs handed back or given up because of the infrastructure."""
    redelivered: int = 0
    """Jobs taken that another worker had taken before."""
    busy_s: float = 0.0
    """Seconds of work, all slots together."""
    uptime_s: float = 0.0
    model_calls: int = 0
    model_s: float = 0.0
    """Seconds that models took to answer, all calls together."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Presence(Message, frozen=True, kw_only=True, tag="presence.v1"):
    """A process that takes part."""

    name: str
    """Unique: role, host, process id and four random characters."""
    role: Role
    host: str
    pid: int
    version: str
    """Of ksearch_async."""
    state: WorkerState
    detail: str = ""
    """Reason for being unfit, the job that proves it, or the timing lease it waits for."""
    device: str = ""
    """As the system reports it; empty for planners and coders."""
    slots: int = 1
    served: tuple[Served, ...] = ()
    tier: str = ""
    """Of a coder: class of its models."""
    model: str = ""
    """Of a coder or planner: the model in words; never an address or a key."""
    busy: tuple[Busy, ...] = ()
    tally: Tally = Tally()
    started_at: str
    seen_at: str
    """Time of this entry, ISO 8601, UTC."""


class RunCard(Message, frozen=True, kw_only=True, tag="run_card.v1"):
    """A run, as workers and people need to know it."""

    run_id: str
    task_name: str
    language: Language
    target: Target
    tier: str = "default"
    weight: int = 1
    """Its share of the workers beside other runs."""
    state: RunState = "running"
    stopped_by: str = ""
    planner: str = ""
    """Name of the process that leads it."""
    branches: int = 1
    rounds: int = 0
    max_rounds: int = 0
    credit: float | None = None
    """Of the best candidate: its interval's lower bound, or its score."""
    usage: Usage = Usage()
    """Cost of its model calls so far, planner and coders together."""
    cost_usd: float | None = None
    """The same in US dollars; null if a price is not known."""
    planner_calls: int = 0
    """Of these calls, the planner's."""
    planner_s: float = 0.0
    """Seconds that the planner's model took to answer them."""
    tiers: tuple[str, ...] = ()
    """Further tiers of coders, where it asks several models."""
    speedup: float | None = None
    """Of the best candidate, against the reference; null: there is none, or it has a score."""
    submitted_at: str
    updated_at: str


_to_json = msgspec.json.Encoder(order="deterministic")
_presence = msgspec.json.Decoder(Presence)
_card = msgspec.json.Decoder(RunCard)


def takes_jobs_of(presence: Presence, card: RunCard) -> bool:
    """Say whether a worker is one for a run: coders by their tier, builders and evaluators by what they serve."""
    match presence.role:
        case "coder":
            return presence.tier in (card.tier, *card.tiers)
        case "builder":
            return any(builds_for(each.language, each.target, card) for each in presence.served)
        case "evaluator":
            return any(evaluates_for(each.language, each.target, card) for each in presence.served)
        case "planner":
            return False


def builds_for(language: Language, own: Target, card: RunCard) -> bool:
    """Say whether a host's compiler makes what a run's evaluators take; `-march` is said, not the host's."""
    target = card.target
    return (language, own.arch, own.toolchain) == (card.language, target.arch, target.toolchain)


def evaluates_for(language: Language, own: Target, card: RunCard) -> bool:
    """Say whether scores of a device may stand beside those of a run's device: only those of the same kind."""
    target = card.target
    return (language, own.fingerprint, own.device) == (card.language, target.fingerprint, target.device)


def node_key(role: Role, name: str) -> str:
    """Name the entry of a process."""
    return f"{NODES}{role}.{checked_id(name)}"


def run_key(run_id: str) -> str:
    """Name the entry of a run."""
    return f"{RUNS}{checked_id(run_id)}"


def lease_key(run_id: str) -> str:
    """Name the entry that says who leads a run."""
    return f"lease.{checked_id(run_id)}"


def encode_entry(entry: Presence | RunCard) -> bytes:
    """Return the form in which an entry is put."""
    return _to_json.encode(entry)


def decode_presence(value: bytes) -> Presence | None:
    """Parse a presence; None if this release cannot read it."""
    try:
        return _presence.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def decode_card(value: bytes) -> RunCard | None:
    """Parse a run's card; None if this release cannot read it."""
    try:
        return _card.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
