"""`ksearch nats runs` and `ksearch nats forget`: what a server keeps of runs, and making room on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import note, put, put_json, terminal_width
from ksearch_async.cli.tables import Column, table_lines
from ksearch_async.connection import open_bus
from ksearch_async.logs import configure_logs
from ksearch_async.phrases import rough_duration
from ksearch_async.refusals import refusal

_COLUMNS = (
    Column("run"),
    Column("state"),
    Column("events", number=True, rank=1),
    Column("size", number=True),
    Column("last event", number=True),
)
_NO_CARD = "-"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as `--json` tells it."""

    run: str
    state: str | None
    """As its card says; null for a run without one: it was never led."""
    events: int
    size_bytes: int
    last_at: str | None
    """ISO 8601, UTC; null where there is no event."""


def runs_command(*, nats: str | None = None, credentials: Path | None = None, as_json: JsonFlag = False) -> int:
    """Say of which runs a server keeps something, and how much.

    Args:
        nats: Address of the NATS server (several of a cluster with commas). [env: KSEARCH_NATS]
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        as_json: Print one JSON object.
    """
    configure_logs()
    kept = anyio.run(_read, nats, credentials)
    if as_json:
        put_json({"runs": kept})
    elif kept:
        for line in table_lines(_COLUMNS, list(_rows(kept)), width=terminal_width()):
            put(line)
    else:
        put("no runs")
    return exits.FOUND


def forget_command(
    *runs: str, nats: str | None = None, credentials: Path | None = None, as_json: JsonFlag = False
) -> int:
    """Remove all that a server keeps of runs. Their folders stay; `ksearch resume` cannot go on with them.

    Args:
        runs: Ids of runs, as `ksearch nats runs` lists them. Those that somebody leads are refused.
        nats: Address of the NATS server (several of a cluster with commas). [env: KSEARCH_NATS]
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        as_json: Print one JSON object.
    """
    configure_logs()
    if not runs:
        raise refusal("no run is named", "ksearch nats runs lists them: ksearch nats forget RUN …")
    anyio.run(_forget, tuple(dict.fromkeys(runs)), nats, credentials, as_json)
    return exits.FOUND


async def _read(nats: str | None, credentials: Path | None) -> list[Kept]:
    """Return the runs of a server, that with the last event first."""
    from ksearch_async.watching import read_cards  # noqa: PLC0415 - `ksearch nats --help` needs no bus

    async with open_bus(nats, os.environ, role="watcher", credentials=credentials) as bus:
        kept = await bus.kept_runs()
        states = {card.run_id: card.state for card in await read_cards(bus)}
    found = [
        Kept(
            run=run.run_id,
            state=states.get(run.run_id),
            events=run.events,
            size_bytes=run.size_bytes,
            last_at=None if run.last_at is None else run.last_at.isoformat(timespec="seconds"),
        )
        for run in kept
    ]
    return sorted(found, key=lambda run: run.last_at or "", reverse=True)


def _rows(kept: list[Kept]) -> Iterator[list[str]]:
    now = datetime.now(UTC)
    for run in kept:
        age_s = None if run.last_at is None else (now - datetime.fromisoformat(run.last_at)).total_seconds()
        yield [
            run.run,
            run.state or _NO_CARD,
            f"{run.events:,}",
            f"{run.size_bytes / 2**20:,.1f} MiB",
            "-" if age_s is None else f"{rough_duration(max(0.0, age_s))} ago",
        ]


async def _forget(runs: tuple[str, ...], nats: str | None, credentials: Path | None, as_json: bool) -> None:
    """Forget all of them, or none if one is not there or is led.

    Raises:
        ConfigError: one is not there, or is not named by its id, or somebody leads it.
    """
    from ksearch_async.forgetting import check_unled, forget_run  # noqa: PLC0415
    from ksearch_async.watching import find_run_id  # noqa: PLC0415

    done: list[str] = []
    async with open_bus(nats, os.environ, role="planner", credentials=credentials) as bus:
        for run in runs:
            if await find_run_id(bus, run) != run:
                raise refusal(f"{run!r} may be another run tomorrow", "name the run: ksearch nats runs lists them")
            await check_unled(bus, run)
        try:
            for run in runs:
                await forget_run(bus, run)
                done.append(run)
                if not as_json:
                    put(f"forgotten: {run}")
        finally:
            if done and len(done) < len(runs):
                note(f"note: forgotten so far: {', '.join(done)}")
    if as_json:
        put_json({"forgotten": done})
