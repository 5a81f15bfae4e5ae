"""What `ksearch nodes` makes of the entries on the bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from evaluators.simulated import SIMULATED
from ksearch_async.cli.nodes import report_of, roster_lines
from ksearch_async.fleet.status import read_roster
from ksearch_async.follow.metrics import metrics_of
from messages.base import Role
from messages.presence import Busy, Presence, RunCard, Served, Tally, WorkerState, encode_entry, node_key, run_key

pytestmark = pytest.mark.anyio

RUN = "rmsnorm-silu-20260101-120000-ab12"


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def presence(role: Role, state: WorkerState = "ready", **more: object) -> Presence:
    known = Presence(
        name=f"{role}-host-17-ab12",
        role=role,
        host="gpu-host-17",
        pid=12345,
        version="0.1.0",
        state=state,
        slots=4,
        started_at=ago(100),
        seen_at=ago(1),
    )
    return msgspec.structs.replace(known, **more)


CARD = RunCard(
    run_id=RUN,
    task_name="rmsnorm_silu",
    language="cpp",
    target=SIMULATED,
    rounds=12,
    max_rounds=300,
    credit=1.875,
    speedup=1.96,
    planner="planner-host-17-ab12",
    submitted_at=ago(100),
    updated_at=ago(2),
)
SERVED = (Served(language="cpp", target=SIMULATED),)


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(lambda _run_id: MemoryStore())
    yield bus
    bus.close()


async def put(bus: MemoryBus, *entries: Presence | RunCard) -> None:
    for entry in entries:
        key = run_key(entry.run_id) if isinstance(entry, RunCard) else node_key(entry.role, entry.name)
        await bus.put(key, encode_entry(entry), revision=0)


async def shown(bus: MemoryBus, *, width: int | None = None, dim: bool = False) -> list[str]:
    return list(roster_lines(await read_roster(bus), width=width, dim=dim))


async def test_nobody_and_nothing_are_said_too(bus: MemoryBus) -> None:
    lines = await shown(bus)
    assert lines[0].startswith("no worker is there")
    assert lines[-1] == "no runs"


async def test_nodes_are_listed_by_role_with_what_they_do(bus: MemoryBus) -> None:
    busy = (Busy(job_id="j1", run_id=RUN, since=ago(12)), Busy(job_id="j2", run_id=RUN, since=ago(3)))
    await put(
        bus,
        presence("evaluator", device="NVIDIA H200", served=SERVED, busy=busy, tally=Tally(done=41, failed=2)),
        presence("coder", tier="default", model="some-model"),
        presence("planner"),
        CARD,
    )
    title, planner, coder, evaluator, *_ = await shown(bus)
    assert title.split()[:3] == ["ROLE", "NAME", "HOST"]
    assert planner.startswith("planner")
    assert RUN in planner
    assert "some-model" in coder
    assert "0/4" in coder
    assert f"2/4 {RUN}, 12 s" in evaluator
    assert "NVIDIA H200" in evaluator
    assert evaluator.split()[-4:-2] == ["41", "2"]


async def test_the_table_fits_80_columns(bus: MemoryBus) -> None:
    busy = (Busy(job_id="j1", run_id=RUN, since=ago(1000)),)
    device = "AMD EPYC 9654 96-Core Processor"
    await put(bus, presence("evaluator", "leaving", device=device, served=SERVED, busy=busy), presence("planner"), CARD)
    lines = await shown(bus, width=80)
    assert max(len(line) for line in lines if not line.startswith("run ")) <= 80
    assert "1/4" in lines[2]
    assert "leaving" in lines[2]


async def test_a_run_says_whom_it_waits_for(bus: MemoryBus) -> None:
    other = msgspec.structs.replace(SIMULATED, device="another")
    await put(
        bus,
        presence("builder", served=SERVED),
        presence("evaluator", served=(Served(language="cpp", target=other),)),
        presence("coder", tier="large"),
        CARD,
    )
    lines = await shown(bus)
    assert f"run {RUN} waits for a coder (tier default)" in lines
    assert f"run {RUN} waits for an evaluator (cpp on simulated)" in lines
    assert not any("builder (" in line for line in lines)


async def test_who_left_is_greyed_and_who_is_unfit_says_why(bus: MemoryBus) -> None:
    await put(
        bus,
        presence("builder", "left"),
        presence("coder", "ready"),
        presence("evaluator", "left", detail="cpp: no compiler"),
    )
    _, coder, builder, evaluator, *rest = await shown(bus, dim=True)
    assert builder.startswith("\x1b[2m")
    assert not coder.startswith("\x1b[2m")
    assert "left, unfit" in evaluator
    assert "evaluator-host-17-ab12: cpp: no compiler" in rest


async def test_a_run_that_is_finished_waits_for_nobody(bus: MemoryBus) -> None:
    await put(bus, msgspec.structs.replace(CARD, state="finished", stopped_by="rounds"))
    lines = await shown(bus)
    assert "finished (rounds)" in lines[-1]


async def test_a_run_that_has_been_finished_for_a_day_is_listed_no_more(bus: MemoryBus) -> None:
    await put(bus, msgspec.structs.replace(CARD, state="finished", updated_at=ago(86_500)))
    assert "no runs" in await shown(bus)


async def test_entries_of_another_release_are_named_and_hide_nothing(bus: MemoryBus) -> None:
    await bus.put("node.coder.new", b'{"type":"presence.v9"}', revision=0)
    await bus.put("run.new", b"\xff", revision=0)
    await put(bus, presence("coder"))
    roster = await read_roster(bus)
    assert roster.unreadable == ("node.coder.new", "run.new")
    assert len(roster.nodes) == 1


async def test_a_runs_best_is_its_speedup_as_ls_says_it_and_not_the_lower_bound(bus: MemoryBus) -> None:
    await put(bus, CARD)
    row = next(line for line in await shown(bus) if line.startswith(RUN))
    assert " 1.96x " in row


async def test_a_runs_best_score_is_no_speedup(bus: MemoryBus) -> None:
    await put(bus, msgspec.structs.replace(CARD, credit=-2.5, speedup=None))
    row = next(line for line in await shown(bus) if line.startswith(RUN))
    assert " -2.5 " in row


async def test_a_card_of_an_older_planner_is_read(bus: MemoryBus) -> None:
    older = msgspec.json.decode(encode_entry(CARD))
    del older["speedup"]
    await bus.put(run_key(RUN), msgspec.json.encode(older), revision=0)
    row = next(line for line in await shown(bus) if line.startswith(RUN))
    assert " 1.875 " in row


async def test_json_holds_everything(bus: MemoryBus) -> None:
    await put(bus, presence("evaluator", served=SERVED), CARD)
    roster = await read_roster(bus)
    report = msgspec.to_builtins(report_of(roster, metrics_of(node.presence for node in roster.nodes)))
    (node,), (run,) = report["nodes"], report["runs"]
    assert node["served"][0]["target"]["arch"] == "simulated"
    assert node["age_s"] >= 1
    assert not node["unfit"]
    assert run["missing"] == ["coder", "builder"]
    assert (run["speedup"], run["credit"]) == (1.96, 1.875)
    assert {"workers", "devices", "queues", "runs"} <= report["metrics"].keys()
