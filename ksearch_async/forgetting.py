"""What a server keeps of runs, and how it is made to forget one."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from actors.bus.base import Bus, ConflictError
from ksearch_async.refusals import refusal
from ksearch_async.watching import leader_of, live_leader
from messages.errors import BusError
from messages.presence import lease_key, run_key

_HOLD_S = 60
"""For how long nobody may lead a run that is being forgotten, if it is not said that it is done."""
_PARTING_S = 2.0


async def forget_run(bus: Bus, run_id: str) -> None:
    """Remove all that a server keeps of a run that nobody leads: jobs, events, blobs and its card.

    What was begun and not finished can be done again: the card goes last, and the run is found by it.

    Raises:
        ConfigError: somebody leads it.
        messages.errors.BusError: the server failed; what was removed until then is gone.
    """
    async with _unled(bus, run_id):
        await bus.delete_run(run_id)
        card = await bus.get(run_key(run_id))
        if card is not None:
            await bus.delete(run_key(run_id), revision=card.revision)


async def check_unled(bus: Bus, run_id: str) -> None:
    """Accept a run that nobody leads. The lease of a dead process is waited for.

    Raises:
        ConfigError: somebody leads it.
    """
    leader = await live_leader(bus, run_id)
    if leader is not None:
        raise _is_led(run_id, leader)


@asynccontextmanager
async def _unled(bus: Bus, run_id: str) -> AsyncIterator[None]:
    """Hold a run's lease, so that nobody leads it meanwhile. That of a dead process is waited for.

    Raises:
        ConfigError: somebody leads it.
    """
    await check_unled(bus, run_id)
    key, holder = lease_key(run_id), f"ksearch-nats-forget-{socket.gethostname()}-{secrets.token_hex(2)}"
    try:
        revision = await bus.put(key, holder.encode(), revision=0, ttl_s=_HOLD_S)
    except ConflictError:
        raise _is_led(run_id, await leader_of(bus, run_id)) from None
    try:
        yield
    finally:
        with anyio.move_on_after(_PARTING_S, shield=True), suppress(BusError):  # else it expires by itself
            await bus.delete(key, revision=revision)


def _is_led(run_id: str, leader: str) -> Exception:
    return refusal(
        f"{leader or 'another process'} leads run {run_id!r}",
        f"ksearch stop {run_id} ends it; then it can be forgotten",
    )
