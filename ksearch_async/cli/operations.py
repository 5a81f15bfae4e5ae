"""What every long-running process of a distributed search can be asked for: logs, traces, metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import structlog
from cyclopts import Group, Parameter

from ksearch_async.logs import configure_logs, console_of
from ksearch_async.tracing import tracing
from messages.base import Role

if TYPE_CHECKING:  # `--help` of every node command reads this module
    from actors.bus.nats import NatsBus
    from actors.member import Member
    from ksearch_async.metrics_endpoint import Reading

OPERATIONS = Parameter(group=Group("Operations", sort_key=6))

log = structlog.get_logger(__name__)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MetricsFlags:
    """Where Prometheus may read."""

    metrics_port: Annotated[int | None, OPERATIONS] = None
    """Serve metrics for Prometheus at this port, 0: at a free one. Needs the extra `metrics`."""
    metrics_host: Annotated[str, OPERATIONS] = "127.0.0.1"
    """Address to serve them at; there is no authentication."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OperationFlags(MetricsFlags):
    """Options of all node commands."""

    log_json: Annotated[bool, Parameter(group=OPERATIONS.group, negative="", show_default=False)] = False
    """Log lines as JSON, one object each, for systemd, Slurm and the like. [env: KSEARCH_LOG_FORMAT=json]"""


@contextmanager
def operated(flags: OperationFlags, environment: Mapping[str, str], *, role: Role) -> Iterator[None]:
    """Have a node's log lines on stderr, and its jobs traced if the environment asks for that.

    Raises:
        ConfigError: what is asked for cannot be had.
    """
    configure_logs(console=console_of(environment, as_json=flags.log_json))
    with tracing(environment, role=role):
        yield


@asynccontextmanager
async def measured(flags: MetricsFlags, read: Callable[[], Awaitable[Reading]]) -> AsyncIterator[None]:
    """Serve metrics, if a port was given; the log says where.

    Raises:
        ConfigError: the extra is missing, or nobody can listen there.
    """
    if flags.metrics_port is None:
        yield
        return
    from ksearch_async.metrics_endpoint import metrics_served  # noqa: PLC0415

    def say(url: str) -> None:
        log.info("metrics served", url=url)

    async with metrics_served(flags.metrics_port, flags.metrics_host, read, say=say):
        yield


async def read_member(member: Member, bus: NatsBus) -> Reading:
    """Return what a node knows: a worker its own figures, a planner, which may look, everybody's.

    Raises:
        messages.errors.BusError: the bus cannot be read.
    """
    from ksearch_async.metrics import worker_use  # noqa: PLC0415
    from ksearch_async.metrics_endpoint import Reading, read_fleet  # noqa: PLC0415

    if member.presence.role == "planner":
        return await read_fleet(bus)
    return Reading(own=worker_use(member.presence), job_s=member.job_s)
