"""`ksearch nodes`: who takes part in the runs of a NATS server, and which runs there are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
import msgspec
from cyclopts import Parameter

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.fleet.access import open_bus
from ksearch_async.fleet.status import Node, Roster, Run, read_roster
from ksearch_async.follow.logs import configure_logs
from ksearch_async.follow.metrics import Metrics, metrics_beside
from ksearch_async.views.terminal import (
    coloured,
    in_colour,
    note,
    one_line,
    put_json,
    put_lines,
    put_styled,
    terminal_width,
)
from ksearch_async.views.text import Column, counted, rough_duration, shortened, table_lines
from messages.base import BusError
from messages.presence import Presence, RunCard
from messages.verdicts import score_text

if TYPE_CHECKING:
    from actors.bus.nats import NatsBus

_WATCH_S = 1.0
_SHORT = 12
"""Length to which names of devices and runs are cut in a narrow terminal."""
_DIM, _CLEAR = "2", "\x1b[H\x1b[J"

_NODES = (
    Column("role"),
    Column("name", rank=5),
    Column("host"),
    Column("pid", number=True, rank=3),
    Column("device", rank=1),
    Column("version", rank=4),
    Column("state"),
    Column("busy with"),
    Column("done", number=True),
    Column("failed", number=True, rank=2),
    Column("seen", number=True),
)
_RUNS = (
    Column("run"),
    Column("task", rank=2),
    Column("state"),
    Column("rounds", number=True),
    Column("best", number=True),
    Column("language", rank=1),
    Column("device", rank=3),
    Column("weight", number=True, rank=4),
    Column("planner", rank=5),
    Column("missing"),
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `--json`."""

    at: str
    nodes: tuple[dict[str, object], ...]
    runs: tuple[dict[str, object], ...]
    unreadable: tuple[str, ...]
    metrics: Metrics
    """Utilisation, spend and queues."""


def nodes_command(
    *,
    nats: str | None = None,
    credentials: Path | None = None,
    watch: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> int:
    """List a server's nodes and runs.

    Args:
        nats: Address of the NATS server; for a cluster several, separated by commas. [env: KSEARCH_NATS]
        credentials: File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]
        watch: Print the list again every second, until Ctrl-C.
        as_json: Print one JSON object; with `--watch` one per line.
    """
    configure_logs()
    return anyio.run(_show, nats, credentials, watch, as_json)


async def _show(nats: str | None, credentials: Path | None, watch: bool, as_json: bool) -> int:
    from actors.bus.nats.connection import OverError  # noqa: PLC0415 - `ksearch nodes --help` needs no NATS

    async with open_bus(nats, os.environ, role="watcher", credentials=credentials) as bus:
        while watch:
            try:
                await _print(bus, clear=in_colour(), as_json=as_json)
            except OverError:
                raise
            except BusError as error:
                note(f"warning: {error}")
            await anyio.sleep(_WATCH_S)
        await _print(bus, clear=False, as_json=as_json)
    return exits.FOUND


async def _print(bus: NatsBus, *, clear: bool, as_json: bool) -> None:
    roster = await read_roster(bus)
    if as_json:
        put_json(report_of(roster, await metrics_beside(roster, bus)))
    else:
        lines = list(roster_lines(roster, width=terminal_width(), dim=in_colour()))
        if in_colour():
            put_styled((_CLEAR if clear else "") + "\n".join(lines))
        else:
            put_lines(lines)
    for key in roster.unreadable:
        note(f"warning: entry {key!r} is of another release and cannot be read")


def report_of(roster: Roster, metrics: Metrics) -> Report:
    """Return all that is known, for scripts: presences and cards as they are, and what follows from them."""
    return Report(
        at=roster.at,
        nodes=tuple(
            {**_plain(node.presence), "age_s": round(node.age_s, 3), "unfit": node.is_unfit} for node in roster.nodes
        ),
        runs=tuple(
            {**_plain(run.card), "age_s": round(run.age_s, 3), "missing": list(run.missing)} for run in roster.runs
        ),
        unreadable=roster.unreadable,
        metrics=metrics,
    )


def roster_lines(roster: Roster, *, width: int | None, dim: bool = False) -> Iterator[str]:
    """Yield two tables: nodes, and runs.

    Args:
        roster: the nodes and runs.
        width: of the terminal; null: nothing is left out.
        dim: show nodes that have left in grey.
    """
    if not roster.nodes:
        yield "no worker is there; start one: ksearch evaluator --nats ADDRESS"
    else:
        rows = [_node_cells(node, roster, narrow=width is not None) for node in roster.nodes]
        lines = table_lines(_NODES, rows, width=width)
        yield next(lines)
        for node, line in zip(roster.nodes, lines, strict=True):
            yield coloured(line, _DIM) if dim and node.has_ended else line
        for node in roster.nodes:
            if node.presence.detail:
                yield one_line(f"{node.presence.name}: {node.presence.detail}")
    yield ""
    if not roster.runs:
        yield "no runs"
        return
    yield from table_lines(_RUNS, [_run_cells(run) for run in roster.runs], width=width)
    yield from _hints(roster)


def _hints(roster: Roster) -> Iterator[str]:
    for run in roster.runs:
        for role in run.missing:
            card = run.card
            wanted = f"tier {card.tier}" if role == "coder" else f"{card.language} on {card.target.device}"
            yield one_line(f"run {card.run_id} waits for {'an' if role == 'evaluator' else 'a'} {role} ({wanted})")


def _node_cells(node: Node, roster: Roster, *, narrow: bool) -> list[str]:
    presence = node.presence
    device = presence.device or presence.model or "-"
    return [
        presence.role,
        presence.name,
        presence.host,
        str(presence.pid),
        shortened(device, _SHORT) if narrow else device,
        presence.version,
        "left, unfit" if node.has_ended and node.is_unfit else presence.state,
        _busy(presence, roster, narrow=narrow),
        str(presence.tally.done),
        str(presence.tally.failed),
        rough_duration(node.age_s),
    ]


def _busy(presence: Presence, roster: Roster, *, narrow: bool) -> str:
    """Say how many slots work, for which runs, and how long: `2/4 rmsnorm-1, 12 s`; of planners, the runs."""
    if presence.role == "planner":
        runs = sorted(run.card.run_id for run in roster.runs if _leads(presence, run))
    else:
        runs = sorted({job.run_id for job in presence.busy})
    named = runs[0] if len(runs) == 1 else counted(len(runs), "run", "runs")
    if narrow:
        named = shortened(named, _SHORT)
    if presence.role == "planner":
        return named if runs else "-"
    if not runs:
        return f"0/{presence.slots}"
    now = datetime.fromisoformat(roster.at)
    longest_s = max((now - datetime.fromisoformat(job.since)).total_seconds() for job in presence.busy)
    return f"{len(presence.busy)}/{presence.slots} {named}, {rough_duration(max(0.0, longest_s))}"


def _leads(presence: Presence, run: Run) -> bool:
    return run.card.planner == presence.name and run.card.state != "finished" and presence.state != "left"


def _run_cells(run: Run) -> list[str]:
    card = run.card
    return [
        card.run_id,
        card.task_name,
        f"{card.state} ({card.stopped_by})" if card.stopped_by else card.state,
        f"{card.rounds}/{card.max_rounds}" if card.max_rounds else str(card.rounds),
        _best(card),
        card.language,
        card.target.device,
        str(card.weight),
        card.planner or "-",
        ", ".join(run.missing) or "-",
    ]


def _best(card: RunCard) -> str:
    """Return what `ksearch ls` says of the same run: the speedup, not the lower bound of its interval; or the score."""
    if card.speedup is not None:
        return f"{card.speedup:.2f}x"
    return "-" if card.credit is None else score_text(card.credit)


def _plain(entry: msgspec.Struct) -> dict[str, object]:
    plain = msgspec.to_builtins(entry)
    assert isinstance(plain, dict)  # noqa: S101 - for the type checker: a struct becomes one
    plain.pop("type", None)
    return plain
