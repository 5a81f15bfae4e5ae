"""Runs and processes of a server: who takes part, who leads each run, and deleting runs."""

from __future__ import annotations

import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import anyio
import msgspec

from actors.bus.base import Bus, ConflictError, UnknownQueueError
from actors.bus.stream import body_of
from ksearch_async.errors import refusal, suggestion
from ksearch_async.fleet.access import EMBEDDED, address_of
from ksearch_async.runs.folder import RunFolder, list_runs
from ksearch_async.runs.run import Order
from ksearch_async.runs.run import Run as FoldedRun
from ksearch_async.settings.run_config import load_config
from messages.base import BusError, ConfigError, Role
from messages.codec import Record, encode
from messages.facts import Decided, Fact
from messages.presence import (
    NODES,
    RUNS,
    Presence,
    RunCard,
    decode_card,
    decode_presence,
    lease_key,
    run_key,
    takes_jobs_of,
)

SHOWN_S = 24 * 3600.0
"""Seconds for which a finished run is listed."""
_ORDER: tuple[Role, ...] = ("planner", "coder", "builder", "evaluator")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A process that takes part, or did until a few minutes ago."""

    presence: Presence
    age_s: float
    """Seconds since it last announced its presence."""

    @property
    def has_ended(self) -> bool:
        """Return True if it has announced that it leaves."""
        return self.presence.state == "left"

    @property
    def is_unfit(self) -> bool:
        """Return True if it takes no jobs because it cannot do them, or left for that reason."""
        return self.presence.state == "unfit" or (self.has_ended and bool(self.presence.detail))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and the workers that it lacks."""

    card: RunCard
    age_s: float
    """Seconds since its planner last updated its card."""
    missing: tuple[Role, ...]
    """Roles of workers that it needs and that are not there; none for a finished run."""


class Roster(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes and all runs."""

    at: str
    """ISO 8601, UTC."""
    nodes: tuple[Node, ...]
    """By role, then by name."""
    runs: tuple[Run, ...]
    """The newest first."""
    unreadable: tuple[str, ...] = ()
    """Keys of entries that this release cannot read."""


async def read_roster(bus: Bus) -> Roster:
    """Read the presence of nodes and the cards of runs.

    Raises:
        messages.base.BusError: the bus cannot be read.
    """
    now = datetime.now(UTC)
    presences, unreadable = [], []
    for key, entry in (await bus.entries(NODES)).items():
        presence = decode_presence(entry.value)
        if presence is None:
            unreadable.append(key)
        else:
            presences.append(presence)
    cards = []
    for key, entry in (await bus.entries(RUNS)).items():
        card = decode_card(entry.value)
        if card is None:
            unreadable.append(key)
        elif card.state != "finished" or _age_s(card.updated_at, now) < SHOWN_S:
            cards.append(card)
    presences.sort(key=lambda each: (_ORDER.index(each.role), each.name))
    cards.sort(key=lambda each: each.submitted_at, reverse=True)
    return Roster(
        at=now.isoformat(timespec="milliseconds"),
        nodes=tuple(Node(presence=each, age_s=_age_s(each.seen_at, now)) for each in presences),
        runs=tuple(
            Run(card=each, age_s=_age_s(each.updated_at, now), missing=_missing(each, presences)) for each in cards
        ),
        unreadable=tuple(sorted(unreadable)),
    )


def _missing(card: RunCard, presences: list[Presence]) -> tuple[Role, ...]:
    if card.state == "finished":
        return ()
    there = {each.role for each in presences if each.state in ("proving", "ready") and takes_jobs_of(each, card)}
    return tuple(role for role in ("coder", "builder", "evaluator") if role not in there)


def _age_s(at: str, now: datetime) -> float:
    """Return the seconds since a time stamp. Clocks of hosts differ, so a time in the future counts as now."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (now - moment).total_seconds())


LATEST = "latest"
_LISTED = 8
"""Most runs that a hint names."""
_LOOK_S = 2.0
_LEASE_LOOK_S = 0.5
_LEASE_S = 15.0
"""Seconds. A run without a leader for longer than a lease lasts has lost its planner."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a run: a folder, or a server."""

    address: str
    run_id: str
    """A run's id, `latest`, or empty for the only run."""
    is_private: bool = False
    """True if the server is the run's own and needs no sign-in."""


def find_place(run: str, nats: str | None, runs_dir: Path, environment: Mapping[str, str]) -> Place:
    """Return the place of a run: the named server, else the one in its folder, else the one in the environment.

    Args:
        run: an id, a run's folder, `latest` or nothing.
        nats: the server's addresses.
        runs_dir: folder of run folders.
        environment: may name a server.
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
            "Ctrl-C stops it (SIGTERM does too); ksearch show shows its state",
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
            f"the server of run {folder.run_id!r} is not there: the run is not running",
            f"ksearch resume {folder.run_id} goes on with it; ksearch show {folder.run_id} shows its state",
        )
    return Place(address=address, run_id=folder.run_id, is_private=True)


def _not_here(run: str, runs_dir: Path) -> ConfigError:
    there = "no runs are" if run in ("", LATEST) else f"no run {run!r} is"
    hint = "--runs-dir says where its folder lies, --nats or KSEARCH_NATS which server knows it"
    ids = [folder.run_id for folder in list_runs(runs_dir)]
    return refusal(f"{there} in {str(runs_dir)!r}, and no NATS server is named", suggestion(run, ids, hint))


def named_folder(run: str, runs_dir: Path, *, has_server: bool) -> RunFolder | None:
    """Return the folder of a run here; None if there is none, or if `latest` means the server's latest run."""
    if run in ("", LATEST):
        runs = [] if has_server else list_runs(runs_dir)
        return runs[0] if runs else None
    for path in (runs_dir / run, Path(run)):
        if (path / "config.json").is_file():
            return RunFolder(path.resolve())
    return None


async def find_run_id(bus: Bus, run: str) -> str:
    """Return the id of a server's run, given by its id, `latest`, or nothing: the only run, or the only active one."""
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
    """Return the cards of a server's runs: active ones first, then the most recently submitted."""
    found = (decode_card(entry.value) for entry in (await bus.entries(RUNS)).values())
    cards = sorted((card for card in found if card is not None), key=lambda card: card.submitted_at, reverse=True)
    return sorted(cards, key=lambda card: card.state == "finished")


def _listed(cards: list[RunCard]) -> str:
    told = [f"{card.run_id} ({card.task_name}, {card.state})" for card in cards[:_LISTED]]
    return "; ".join([*told, "…"] if len(cards) > _LISTED else told)


async def has_stream(bus: Bus, run_id: str) -> bool:
    """Return True if a server has a run's events. Creates nothing."""
    try:
        await bus.find(run_id, f"{run_id}.opened")  # unlike `open_stream`, this makes none
    except (UnknownQueueError, ValueError):
        return False
    return True


async def read_chronicle(bus: Bus, run_id: str) -> FoldedRun:
    """Fold the records of a run's stream, which must exist."""
    chronicle, last = FoldedRun(), await bus.open_stream(run_id)
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
    """Return the name of the process that holds a run's lease; empty if none does."""
    entry = await bus.get(lease_key(run_id))
    return entry.value.decode() if entry else ""


async def live_leader(bus: Bus, run_id: str) -> str | None:
    """Return a run's leader. If the holder of the lease does not renew it, wait for the lease to expire."""
    first = await bus.get(lease_key(run_id))
    entry = first
    while entry is not None and first is not None:
        if entry.revision != first.revision:
            return entry.value.decode()
        await anyio.sleep(_LEASE_LOOK_S)
        entry = await bus.get(lease_key(run_id))
    return None


async def tell_leader(bus: Bus, run_id: str, note: Callable[[str], None]) -> None:
    """Report changes of a run's leader, and its loss, until cancelled."""
    known, seen_at, was_missed = "", anyio.current_time(), False
    while True:
        leader = await _leader_if_known(bus, run_id, otherwise=known)
        now = anyio.current_time()
        if leader and (leader != known or was_missed):
            if known or was_missed:
                note(f"{leader} leads the run now")
            known, was_missed = leader, False
        elif not leader and not was_missed and now - seen_at >= _LEASE_S:
            note(f"no planner leads the run: start one (ksearch planner {run_id} --nats …), or resume it")
            was_missed = True
        if leader:
            seen_at = now
        await anyio.sleep(_LOOK_S)


async def _leader_if_known(bus: Bus, run_id: str, *, otherwise: str) -> str:
    """Return the leader; while the bus cannot be reached, the last known one."""
    try:
        return await leader_of(bus, run_id)
    except BusError:
        return otherwise


async def ask(bus: Bus, run_id: str, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
    """Give a run an order, and return the planner's decision on it. None: no decision within `patience_s`."""
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


_HOLD_S = 60
"""Seconds for which no planner may lead a run that is being removed, unless the removal ends sooner."""
_PARTING_S = 2.0


async def forget_run(bus: Bus, run_id: str) -> None:
    """Remove everything that a server keeps of a run without a leader: jobs, events, blobs and its card.

    An interrupted removal can be repeated: the card, by which the run is found, is removed last.

    Raises:
        ConfigError: the run has a leader.
        messages.base.BusError: the server failed; what was removed until then is gone.
    """
    async with _unled(bus, run_id):
        await bus.delete_run(run_id)
        card = await bus.get(run_key(run_id))
        if card is not None:
            await bus.delete(run_key(run_id), revision=card.revision)


async def check_unled(bus: Bus, run_id: str) -> None:
    """Check that a run has no leader. Waits for the lease of a dead process to expire."""
    leader = await live_leader(bus, run_id)
    if leader is not None:
        raise _is_led(run_id, leader)


@asynccontextmanager
async def _unled(bus: Bus, run_id: str) -> AsyncIterator[None]:
    """Hold a run's lease, so that no other process leads it. Waits for a dead process's lease to expire."""
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
