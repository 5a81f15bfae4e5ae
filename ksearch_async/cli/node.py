"""Starts the process of one node: its connection, logs, metrics and work, and what is left to say at the end."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec

from actors.member import Member
from ksearch_async.cli import exits
from ksearch_async.cli.node_flags import (
    DeviceFlags,
    ModelFlags,
    NodeFlags,
    artifacts_of,
    settings_of,
    slots_of,
    terms_of,
)
from ksearch_async.cli.operations import OperationFlags, measured, operated, read_member
from ksearch_async.cli.output import put_json
from ksearch_async.connection import open_bus
from ksearch_async.devices import Device, device_of
from ksearch_async.duties import Coding
from ksearch_async.models import open_model, writer_dialect, writer_names
from ksearch_async.nodes import Ending, NodeTerms, Work, check_may_be, presence_of, run_node
from ksearch_async.refusals import refusal
from messages.base import Language, Role
from messages.errors import BusError
from messages.presence import Presence, Tally

if TYPE_CHECKING:
    from actors.bus.nats import NatsBus


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
    """What `--json` says at the end."""

    name: str
    role: Role
    exit_code: int
    detail: str
    """Why it was unfit; empty if it was not."""
    tally: Tally


def start_node(order: Order, *, as_json: bool) -> int:
    """Be a node until asked to leave, and return the exit code.

    Raises:
        ConfigError: the connection cannot be what it is told to be.
        messages.errors.BusError: the server cannot be reached, or does not let this node in.
    """
    gc.enable()  # `main` disabled it for the start; a node may run for weeks
    with operated(order.operations, os.environ, role=order.presence.role):
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
    """End the node when its connection is over: another process may connect again, this one cannot.

    Raises:
        BusError: says why it is over.
    """
    raise BusError(f"the connection to the server is over: {await bus.over()}")


def device_order(
    role: Role,
    duty: Callable[[Device, Path, tuple[Language, ...]], Work],
    node: NodeFlags,
    work: DeviceFlags,
    operations: OperationFlags,
) -> Order:
    """Return a builder or an evaluator that is to be.

    Raises:
        ConfigError: names what cannot be used.
    """
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
    """Return a coder that is to be.

    Raises:
        ConfigError: names what cannot be used.
    """
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
