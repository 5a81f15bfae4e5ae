"""Runs of a server as others see them: which there are, where they are, who leads them; and asking for something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

import anyio
import msgspec

from actors.bus.base import Bus, UnknownQueueError
from actors.bus.reading import body_of
from ksearch_async.chronicle import Chronicle
from ksearch_async.config import load_config
from ksearch_async.connection import EMBEDDED, address_of
from ksearch_async.mailbox import Order
from ksearch_async.refusals import refusal, suggestion
from ksearch_async.runs import RunFolder, list_runs
from messages.codec import Record, encode
from messages.errors import BusError, ConfigError
from messages.facts import Decided, Fact
from messages.presence import RUNS, RunCard, decode_card, lease_key

LATEST = "latest"
_LISTED = 8
"""Runs that a hint names at most."""
_LOOK_S = 2.0
_LEASE_LOOK_S = 0.5
_LEASE_S = 15.0
"""A run that nobody leads for longer than a lease lasts has lost its planner."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is to be found."""

    address: str
    run_id: str
    """Or `latest`, or nothing: the only one."""
    is_private: bool = False
    """The server is the run's own, and asks nobody who they are."""


def find_place(run: str, nats: str | None, runs_dir: Path, environment: Mapping[str, str]) -> Place:
    """Return where a run is: on the server that is named, else where its folder says, else on the environment's.

    Args:
        run: an id, a run's folder, `latest` or nothing.
        nats: the server's addresses.
        runs_dir: where run folders are looked for.
        environment: may name a server.

    Raises:
        ConfigError: that is not known; or the run has no server.
    """
    folder = None if nats else named_folder(run, runs_dir, has_server=bool(environment.get("KSEARCH_NATS")))
    if folder is None:
        if not nats and not environment.get("KSEARCH_NATS"):
            raise _not_here(run, runs_dir)
        return Place(address=address_of(nats, environment), run_id=run)
    saved = load_config(folder.config).nats
    if saved is None:
        raise refusal(
            f"run {folder.run_id!r} has no server: its process alone knows what it does",
            "Ctrl-C stops it (SIGTERM does too); ksearch show tells how it stands",
        )
    if saved != EMBEDDED:
        return Place(address=saved, run_id=folder.run_id)
    try:
        address = folder.address.read_text().strip()
    except OSError:
        address = ""
    was_killed = folder.journal.exists() and not folder.in_use()  # it leaves the address behind
    if not address or was_killed:
        raise refusal(
            f"the server of run {folder.run_id!r} is not there: nobody works on the run",
            f"ksearch resume {folder.run_id} goes on with it; ksearch show {folder.run_id} tells how it stands",
        )
    return Place(address=address, run_id=folder.run_id, is_private=True)


def _not_here(run: str, runs_dir: Path) -> ConfigError:
    there = "no runs are" if run in ("", LATEST) else f"no run {run!r} is"
    hint = "--runs-dir says where its folder lies, --nats or KSEARCH_NATS which server knows it"
    ids = [folder.run_id for folder in list_runs(runs_dir)]
    return refusal(f"{there} in {str(runs_dir)!r}, and no NATS server is named", suggestion(run, ids, hint))


def named_folder(run: str, runs_dir: Path, *, has_server: bool) -> RunFolder | None:
    """Return the folder of a run here; none if there is none, or if `latest` means the server's."""
    if run in ("", LATEST):
        runs = [] if has_server else list_runs(runs_dir)
        return runs[0] if runs else None
    for path in (runs_dir / run, Path(run)):
        if (path / "config.json").is_file():
            return RunFolder(path.resolve())
    return None


async def find_run_id(bus: Bus, run: str) -> str:
    """Return the run of a server that is meant by an id, `latest`, or nothing: the only one, or the only one going on.

    Raises:
        ConfigError: there is none, or nothing was said and there are several; lists them.
    """
    cards = await read_cards(bus)
    ids = [card.run_id for card in cards]
    going = [card for card in cards if card.state != "finished"]
    if run == LATEST or (not run and len(going or cards) == 1):
        if not cards:
            raise refusal("no run is on this server", "start one: ksearch run rmsnorm_silu --nats ADDRESS")
        return ids[0]
    if not run:
        said = "several runs are on this server" if cards else "no run is on this server"
        raise refusal(said, _listed(cards) or "start one: ksearch run rmsnorm_silu --nats ADDRESS")
    if run in ids or await has_stream(bus, run):
        return run
    raise refusal(f"no run {run!r} on this server", suggestion(run, ids, _listed(cards)))


async def read_cards(bus: Bus) -> list[RunCard]:
    """Return the runs of a server, those that go on first, then the one that was submitted last."""
    found = (decode_card(entry.value) for entry in (await bus.entries(RUNS)).values())
    cards = sorted((card for card in found if card is not None), key=lambda card: card.submitted_at, reverse=True)
    return sorted(cards, key=lambda card: card.state == "finished")


def _listed(cards: list[RunCard]) -> str:
    told = [f"{card.run_id} ({card.task_name}, {card.state})" for card in cards[:_LISTED]]
    return "; ".join([*told, "…"] if len(cards) > _LISTED else told)


async def has_stream(bus: Bus, run_id: str) -> bool:
    """Say whether a server has a run's events. Makes none."""
    try:
        await bus.find(run_id, f"{run_id}.opened")  # unlike `open_stream`, this makes none
    except (UnknownQueueError, ValueError):
        return False
    return True


async def read_chronicle(bus: Bus, run_id: str) -> Chronicle:
    """Fold what a run's stream, which must be there, holds now."""
    chronicle, last = Chronicle(), await bus.open_stream(run_id)
    if last == 0:
        return chronicle
    events = bus.events(run_id)
    try:
        async for posted in events:
            if (body := body_of(posted)) is not None:
                chronicle.fold(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body))
            if posted.seq >= last:
                break
    finally:
        await events.aclose()
    chronicle.last_seq = last
    return chronicle


async def leader_of(bus: Bus, run_id: str) -> str:
    """Return the name of the process that has a run's lease; empty if nobody has."""
    entry = await bus.get(lease_key(run_id))
    return entry.value.decode() if entry else ""


async def live_leader(bus: Bus, run_id: str) -> str | None:
    """Return who leads a run. A lease that its holder does not renew is waited for: it is a dead one's."""
    first = await bus.get(lease_key(run_id))
    entry = first
    while entry is not None and first is not None:
        if entry.revision != first.revision:
            return entry.value.decode()
        await anyio.sleep(_LEASE_LOOK_S)
        entry = await bus.get(lease_key(run_id))
    return None


async def tell_leader(bus: Bus, run_id: str, note: Callable[[str], None]) -> None:
    """Say when another process leads a run than before, and when nobody does, until cancelled."""
    known, seen_at, was_missed = "", anyio.current_time(), False
    while True:
        leader = await _leader_if_known(bus, run_id, otherwise=known)
        now = anyio.current_time()
        if leader and (leader != known or was_missed):
            if known or was_missed:
                note(f"{leader} leads the run now")
            known, was_missed = leader, False
        elif not leader and not was_missed and now - seen_at >= _LEASE_S:
            note(f"nobody leads the run: start a planner (ksearch planner {run_id} --nats …), or resume it")
            was_missed = True
        if leader:
            seen_at = now
        await anyio.sleep(_LOOK_S)


async def _leader_if_known(bus: Bus, run_id: str, *, otherwise: str) -> str:
    """Return who leads; while the bus is away, who did."""
    try:
        return await leader_of(bus, run_id)
    except BusError:
        return otherwise


async def ask(bus: Bus, run_id: str, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
    """Ask a run for something, and return what its planner decided on it. None: nothing, within `patience_s`."""
    seq = await bus.publish(run_id, encode(order), msg_id=f"{run_id}.asked-{uuid4().hex}")
    with anyio.move_on_after(patience_s):
        events = bus.events(run_id, after=seq)
        try:
            async for posted in events:
                body = body_of(posted)
                if isinstance(body, Decided) and body.cause == seq:
                    return body.facts
        finally:
            await events.aclose()
    return None
