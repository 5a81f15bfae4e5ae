"""Opens the bus that a command talks over: from an address and the environment to a connected `NatsBus`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ksearch_async.refusals import refusal

if TYPE_CHECKING:
    from actors.bus.nats import NatsBus
    from ksearch_async.access import AccessRole

EMBEDDED = "embedded"
"""What `--nats` says for a server of the run's own."""


@asynccontextmanager
async def open_bus(
    nats: str | None,
    environment: Mapping[str, str],
    *,
    role: AccessRole,
    credentials: Path | None = None,
    name: str = "",
) -> AsyncIterator[NatsBus]:
    """Connect, and close the connection afterwards.

    Args:
        nats: addresses, with commas; null: those of `KSEARCH_NATS`.
        environment: holds what is not given.
        role: as what this process takes part.
        credentials: file that says who it is; null: as the environment says.
        name: what the server's monitoring calls this process.

    Raises:
        ConfigError: no address is known, or it holds credentials.
        messages.errors.BusError: it cannot connect, or is not let in.
    """
    from actors.bus.nats import open_nats  # noqa: PLC0415 - commands that need no server need no client of it
    from ksearch_async.access import options_for  # noqa: PLC0415

    options = options_for(address_of(nats, environment), environment, role=role, credentials=credentials, name=name)
    async with open_nats(options) as bus:
        yield bus


def address_of(nats: str | None, environment: Mapping[str, str]) -> str:
    """Return the addresses that are given, or those of the environment.

    Raises:
        ConfigError: there are none.
    """
    address = nats or environment.get("KSEARCH_NATS") or ""
    if not address:
        raise refusal("no NATS server is named", "--nats nats://HOST:4222, or KSEARCH_NATS in the environment")
    if address == EMBEDDED:
        raise refusal(
            "'embedded' is the server of a run: it has an address of its own", "ksearch run prints it when it starts"
        )
    return address
