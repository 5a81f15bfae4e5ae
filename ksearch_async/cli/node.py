"""`ksearch coder`, `builder` and `evaluator`: options and the process of a node."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import msgspec
import structlog
from cyclopts import Group, Parameter

from actors.worker.member import Member
from ksearch_async.cli import exits
from ksearch_async.cli.flags import EndpointFlags, JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.fleet.access import open_bus
from ksearch_async.fleet.nodes import GRACE_S, Coding, Ending, NodeTerms, Work, check_may_be, presence_of, run_node
from ksearch_async.fleet.workers import Device, device_of
from ksearch_async.follow.logs import configure_logs, console_of
from ksearch_async.follow.tracing import tracing
from ksearch_async.runs.folder import check_writable
from ksearch_async.settings.models import open_model, writer_dialect, writer_names
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.run_config import RunConfig
from ksearch_async.views.terminal import put_json
from messages.base import BusError, Language, Role
from messages.presence import Presence, Tally

if TYPE_CHECKING:
    from actors.bus.nats import NatsBus
    from ksearch_async.follow.metrics import Reading


OPERATIONS = Parameter(group=Group("Operations", sort_key=6))

log = structlog.get_logger(__name__)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OperationFlags:
    """Options of all node commands."""

    metrics_port: Annotated[int | None, OPERATIONS] = None
    """Serve metrics for Prometheus at this port; 0: a free port. Needs `pip install ksearch-async[metrics]`."""
    metrics_host: Annotated[str, OPERATIONS] = "127.0.0.1"
    """Address to serve the metrics at; there is no authentication."""
    log_json: Annotated[bool, Parameter(group=OPERATIONS.group, negative="", show_default=False)] = False
    """Log lines as JSON, one object each, for systemd, Slurm and the like. [env: KSEARCH_LOG_FORMAT=json]"""


@asynccontextmanager
async def measured(flags: OperationFlags, read: Callable[[], Awaitable[Reading]]) -> AsyncIterator[None]:
    """Serve metrics, if a port was given; the log says where."""
    if flags.metrics_port is None:
        yield
        return
    from ksearch_async.follow.metrics import metrics_served  # noqa: PLC0415

    def say(url: str) -> None:
        log.info("metrics served", url=url)

    async with metrics_served(flags.metrics_port, flags.metrics_host, read, say=say):
        yield


async def read_member(member: Member, bus: NatsBus) -> Reading:
    """Return the metrics that a node knows: of a worker its own, of a planner those of all nodes."""
    from ksearch_async.follow.metrics import (  # noqa: PLC0415
        Reading,
        read_fleet,
        worker_use,
    )

    if member.presence.role == "planner":
        return await read_fleet(bus)
    return Reading(own=worker_use(member.presence), job_s=member.job_s)


SERVER = Parameter(group=Group("Server", sort_key=1))
NODE = Parameter(group=Group("Node", sort_key=2))
MODEL = Parameter(group=Group("Model", sort_key=3))

MOST_SLOTS = 1024
DEFAULT_ARTIFACTS = Path("~/.cache/ksearch/artifacts")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NodeFlags:
    """Settings of every node."""

    nats: Annotated[str | None, SERVER] = None
    """Address of the NATS server, `nats://HOST:4222`; for a cluster several, separated by commas. [env:
    KSEARCH_NATS]"""
    credentials: Annotated[Path | None, SERVER] = None
    """File with this node's credentials for the server. [env: KSEARCH_NATS_CREDENTIALS]"""
    slots: Annotated[int | None, NODE] = None
    """Jobs done at once. [default: 2; 8 for a coder]"""
    node_name: Annotated[str | None, NODE] = None
    """Name of the node; a suffix makes it unique. [default: role, host and process id]"""
    grace: Annotated[float, NODE] = GRACE_S
    """Seconds to finish jobs in hand before it leaves; unfinished jobs are handed back."""
    exit_when_idle: Annotated[float | None, NODE] = None
    """Leave after this many seconds without a job."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DeviceFlags:
    """Settings of builders and evaluators."""

    device: Annotated[str, NODE] = "cpu"
    """`cpu`; a GPU of this host, `cuda:0` and so on; or `simulated[:SECONDS]`: nothing is run, and after that time a
    verdict is derived from the candidate's hash."""
    language: Annotated[tuple[Language, ...], Parameter(group=NODE.group, negative="", show_default=False)] = ()
    """Serve only this language; may be given several times. [default: all that this host supports]"""
    isolation: Annotated[Literal["auto", "strict"], NODE] = "auto"
    """Protection of this host from candidates: `auto` uses every mechanism that the host offers; `strict` refuses to
    run candidates without seccomp, a closed network, and either Landlock or a private root."""
    artifacts: Annotated[Path | None, NODE] = None
    """Folder that keeps build products, 2 GiB at most; processes of a host may share it. [default:
    ~/.cache/ksearch/artifacts]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AskedFlags(EndpointFlags):
    """How a model is asked by a node."""

    latency: Annotated[float, MODEL] = 0.0
    """Seconds that every answer of the built-in rules takes, as an endpoint would."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelFlags(AskedFlags):
    """Which model a coder asks."""

    tier: Annotated[str | None, NODE] = None
    """Write for runs that ask for this tier. [default: default]"""
    seed: Annotated[int | None, MODEL] = None
    """Seed of the built-in rules' answers. [default: 0]"""


PLAIN_NODE = NodeFlags()
PLAIN_DEVICE = DeviceFlags()
PLAIN_MODEL = ModelFlags()
PLAIN_OPERATIONS = OperationFlags()


def settings_of(node: NodeFlags, model: ModelFlags = PLAIN_MODEL) -> RunConfig:
    """Return the settings that nodes share with runs: flags, and `KSEARCH_…` variables where a flag is not given."""
    return resolve_config("node", environment=os.environ, flags={"nats": node.nats, **given_settings(model)})


def given_settings(flags: AskedFlags) -> dict[str, Any]:
    """Return the flags that are settings of runs too, by their names there."""
    apart = {"credentials", "node_name", "lease", "exit_when_idle", "latency"}
    return {name.replace("_", "-"): value for name, value in asdict(flags).items() if name not in apart}


def terms_of(node: NodeFlags) -> NodeTerms:
    """Return how long the node stays."""
    if not (isfinite(node.grace) and node.grace >= 0):
        raise refusal(f"--grace: expected seconds, not {node.grace!r}")
    idle = node.exit_when_idle
    if idle is not None and not (isfinite(idle) and idle > 0):
        raise refusal(f"--exit-when-idle: expected seconds above 0, not {idle!r}")
    return NodeTerms(grace_s=node.grace, idle_s=idle)


def slots_of(node: NodeFlags, usual: int) -> int:
    """Return how many jobs are done at once."""
    slots = usual if node.slots is None else node.slots
    if not 1 <= slots <= MOST_SLOTS:
        raise refusal(f"--slots: expected 1 to {MOST_SLOTS}, not {slots}")
    return slots


def artifacts_of(device: DeviceFlags) -> Path:
    """Return the folder that keeps what was built."""
    folder = (device.artifacts or DEFAULT_ARTIFACTS).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_writable(folder)
    except OSError as error:
        raise refusal(f"cannot write to --artifacts {str(folder)!r}: {error.strerror}") from error
    return folder


_EXITS: dict[Ending, int] = {"left": exits.FOUND, "unfit": exits.INFRASTRUCTURE, "cut short": exits.INTERRUPTED}


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is to be."""

    presence: Presence
    terms: NodeTerms
    servers: str | None
    credentials: Path | None
    operations: OperationFlags
    open_work: Callable[[], AbstractAsyncContextManager[Work]]


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Last lines of `--json`."""

    name: str
    role: Role
    exit_code: int
    detail: str
    """Reason why it was unfit; empty if it was fit."""
    tally: Tally


def start_node(order: Order, *, as_json: bool) -> int:
    """Be a node until asked to leave, and return the exit code."""
    gc.enable()  # `main` disabled it for the start; a node may run for weeks
    configure_logs(console=console_of(os.environ, as_json=order.operations.log_json))
    with tracing(os.environ, role=order.presence.role):
        left = anyio.run(_be, order)
    if as_json:
        put_json(left)
    return left.exit_code


async def _be(order: Order) -> Left:
    presence = order.presence
    async with (
        open_bus(
            order.servers, os.environ, role=presence.role, credentials=order.credentials, name=presence.name
        ) as bus,
        order.open_work() as work,
    ):
        await check_may_be(bus, presence.role)
        member = Member(bus, presence)
        async with measured(order.operations, partial(read_member, member, bus)), anyio.create_task_group() as tasks:
            tasks.start_soon(_end_with, bus)
            ending = await run_node(bus, member, work, order.terms)
            tasks.cancel_scope.cancel()
    last = member.presence
    return Left(name=last.name, role=last.role, exit_code=_EXITS[ending], detail=last.detail, tally=last.tally)


async def _end_with(bus: NatsBus) -> None:
    """End the node when its connection is over: another process may connect again, this one cannot."""
    raise BusError(f"the connection to the server is over: {await bus.over()}")


def device_order(
    role: Role,
    duty: Callable[[Device, Path, tuple[Language, ...]], Work],
    node: NodeFlags,
    work: DeviceFlags,
    operations: OperationFlags,
) -> Order:
    """Return a builder or an evaluator that is to be."""
    slots, device, settings = slots_of(node, usual=2), device_of(work.device, work.isolation), settings_of(node)
    made = duty(device, artifacts_of(work), tuple(dict.fromkeys(work.language)))
    return Order(
        presence=presence_of(role, name=node.node_name, slots=slots, device=device.describe()),
        terms=terms_of(node),
        servers=settings.nats,
        credentials=node.credentials,
        operations=operations,
        open_work=lambda: nullcontext(made),
    )


def coder_order(node: NodeFlags, work: ModelFlags, operations: OperationFlags) -> Order:
    """Return a coder that is to be."""
    settings = settings_of(node, work)
    slots = slots_of(node, usual=settings.model.concurrency)
    model_settings = msgspec.structs.replace(settings.model, concurrency=slots)
    dialect = writer_dialect(model_settings, os.environ)
    if not (isfinite(work.latency) and work.latency >= 0):
        raise refusal(f"--latency: expected seconds, not {work.latency!r}")
    if work.latency and dialect != "offline":
        raise refusal("--latency is for the built-in rules: an endpoint takes its own time", "leave it out")

    @asynccontextmanager
    async def open_work() -> AsyncIterator[Work]:
        async with open_model(model_settings, os.environ, seed=settings.seed, latency_s=work.latency) as model:
            yield Coding(model)

    return Order(
        presence=presence_of(
            "coder",
            name=node.node_name,
            slots=slots,
            tier=settings.tier,
            model=writer_names(model_settings, os.environ),
        ),
        terms=terms_of(node),
        servers=settings.nats,
        credentials=node.credentials,
        operations=operations,
        open_work=open_work,
    )


def builder_command(
    *,
    node: NodeFlags = PLAIN_NODE,
    work: DeviceFlags = PLAIN_DEVICE,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Compile candidates.

    Args:
        node: Settings of every node.
        work: The device to compile for.
        operations: Logs and metrics.
        as_json: Print one JSON object after leaving.
    """
    from ksearch_async.fleet.nodes import Building  # noqa: PLC0415

    return start_node(device_order("builder", Building, node, work, operations), as_json=as_json)


def coder_command(
    *,
    node: NodeFlags = PLAIN_NODE,
    work: ModelFlags = PLAIN_MODEL,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Write candidates.

    Args:
        node: Settings of every node.
        work: The model that writes.
        operations: Logs and metrics.
        as_json: Print one JSON object after leaving.
    """
    return start_node(coder_order(node, work, operations), as_json=as_json)


def evaluator_command(
    *,
    node: NodeFlags = PLAIN_NODE,
    work: DeviceFlags = PLAIN_DEVICE,
    operations: OperationFlags = PLAIN_OPERATIONS,
    as_json: JsonFlag = False,
) -> int:
    """Judge candidates.

    Args:
        node: Settings of every node.
        work: The device to evaluate on.
        operations: Logs and metrics.
        as_json: Print one JSON object after leaving.
    """
    from ksearch_async.fleet.nodes import Evaluating  # noqa: PLC0415

    return start_node(device_order("evaluator", Evaluating, node, work, operations), as_json=as_json)
