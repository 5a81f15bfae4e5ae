"""A planner that stands by, over the memory bus: which runs it leads, how it records them, and how it leaves."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.llm.base import Model, ScriptedModel
from actors.planner.leadership import LeaseTerms
from actors.recorder.projection import Projection
from actors.worker.member import Member
from ksearch_async.fleet.nodes import NodeTerms, presence_of, run_node
from ksearch_async.fleet.standby import Planning
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.settings.run_config import ModelSettings, load_config
from messages.codec import encode
from messages.events import ClockTicked, RunStarted
from messages.presence import RunCard, decode_card, encode_entry, lease_key, run_key
from messages.settings import Budget, SearchSettings
from tests.actors.planner.hands import Hands
from tests.actors.planner.rig import DESCRIPTION, TARGET, TASK, planner_answers

pytestmark = pytest.mark.anyio

ROUNDS = 12
PATIENCE_S = 20.0


class Server:
    """A bus with runs that somebody started and nobody leads, and workers for them."""

    def __init__(self) -> None:
        self.bus = MemoryBus(lambda _run_id: MemoryStore())
        self.hands: dict[str, Hands] = {}

    async def has(self, run_id: str, *, rounds: int = ROUNDS, **card: object) -> None:
        started = RunStarted(
            run_id=run_id,
            task=TASK,
            description=DESCRIPTION,
            target=TARGET,
            settings=SearchSettings(branches=2, budget=Budget(max_rounds=rounds)),
            seed=7,
            weight=3,
        )
        await self.bus.open_stream(run_id)
        await self.bus.publish(run_id, encode(started), msg_id=f"{run_id}.started")
        await self.shows(run_id, **card)
        self.hands[run_id] = Hands(self.bus, started, work_s=0.01)

    async def shows(self, run_id: str, **card: object) -> None:
        shown = RunCard(
            run_id=run_id, task_name="t", language="cpp", target=TARGET, submitted_at="2026-01-01", updated_at="2026"
        )
        entry = encode_entry(msgspec.structs.replace(shown, **card))
        await self.bus.put(run_key(run_id), entry, revision=0)

    async def card(self, run_id: str) -> RunCard:
        entry = await self.bus.get(run_key(run_id))
        card = decode_card(entry.value) if entry else None
        assert card is not None
        return card

    async def until(self, run_id: str, **wanted: object) -> None:
        with anyio.fail_after(PATIENCE_S):
            while True:
                card = await self.card(run_id)
                if all(getattr(card, name) == value for name, value in wanted.items()):
                    return
                await anyio.sleep(0.02)


class StandingBy:
    """A standby in this process."""

    def __init__(self, server: Server, runs_dir: Path, *only: str) -> None:
        self.member = Member(server.bus, presence_of("planner", name="s", slots=1), every_s=1.0)
        self.seeds: list[int] = []
        self.ending: str | None = None
        self._bus = server.bus

        @asynccontextmanager
        async def open_model(seed: int) -> AsyncIterator[Model]:
            self.seeds.append(seed)
            yield ScriptedModel(planner_answers(news=4), latency_s=0.05)

        self._planning = Planning(
            open_model,
            runs_dir=runs_dir,
            address="nats://somewhere:4222",
            model=ModelSettings(name="m"),
            only=frozenset(only),
            terms=LeaseTerms(ttl_s=2, renew_s=0.5, poll_s=0.1),
        )

    async def __call__(self) -> None:
        self.ending = await run_node(self._bus, self.member, self._planning, NodeTerms())


@asynccontextmanager
async def standing_by(server: Server, runs_dir: Path, *only: str) -> AsyncIterator[StandingBy]:
    """Have a standby and all workers at work; in the end the standby leaves."""
    standing = StandingBy(server, runs_dir, *only)
    async with anyio.create_task_group() as tasks:
        for hands in server.hands.values():
            tasks.start_soon(hands.work)
        left = anyio.Event()

        async def be() -> None:
            await standing()
            left.set()

        tasks.start_soon(be)
        yield standing
        standing.member.leave()
        with anyio.fail_after(PATIENCE_S):
            await left.wait()
        tasks.cancel_scope.cancel()


async def test_runs_that_nobody_leads_are_led_at_once_and_recorded_each_in_its_folder(tmp_path: Path) -> None:
    server = Server()
    for run_id in ("one", "two"):
        await server.has(run_id)
    async with standing_by(server, tmp_path) as standing:
        for run_id in ("one", "two"):
            await server.until(run_id, state="finished", planner=standing.member.name, rounds=ROUNDS)
        with anyio.fail_after(PATIENCE_S):
            while standing.member.presence.busy:  # noqa: ASYNC110 - a member tells of its state, not of its jobs
                await anyio.sleep(0.02)
    assert standing.ending == "left"
    assert standing.seeds == [7, 7]
    for run_id in ("one", "two"):
        folder = RunFolder(tmp_path / run_id)
        chronicle = read_run(folder)
        assert chronicle.finished is not None
        assert chronicle.state.rounds == ROUNDS
        assert folder.best.is_dir()
        assert not folder.in_use()
        config = load_config(folder.config)
        assert (config.nats, config.weight, config.seed, config.model.name) == ("nats://somewhere:4222", 3, 7, "m")
        assert config.search.budget.max_rounds == ROUNDS


async def test_who_leaves_gives_its_leases_back_and_another_one_goes_on(tmp_path: Path) -> None:
    server = Server()
    await server.has("one", rounds=40)
    async with standing_by(server, tmp_path / "a") as first:
        await server.until("one", planner=first.member.name)
        assert [busy.run_id for busy in first.member.presence.busy] == ["one"]
    assert await server.bus.get(lease_key("one")) is None
    assert (await server.card("one")).state == "running"
    async with standing_by(server, tmp_path / "b") as second:
        await server.until("one", planner=second.member.name, state="finished")
    assert read_run(RunFolder(tmp_path / "b" / "one")).finished is not None
    assert set(server.hands["one"].done.values()) == {1}


async def test_runs_that_are_led_or_over_or_not_meant_are_left_alone(tmp_path: Path) -> None:
    server = Server()
    await server.has("meant")
    await server.has("other")
    await server.has("led")
    await server.has("over", state="finished")
    await server.bus.put(lease_key("led"), b"somebody", revision=0)
    with capture_logs() as logs:
        async with standing_by(server, tmp_path, "meant", "led", "over"):
            await server.until("meant", state="finished")
    assert [line["event"] for line in logs].count("no planner leads this run") == 1
    assert os.listdir(tmp_path) == ["meant"]  # noqa: PTH208 - a listing is all that is wanted
    assert (await server.card("other")).planner == ""


async def test_a_run_that_cannot_be_led_costs_the_others_nothing(tmp_path: Path) -> None:
    server = Server()
    await server.shows("gone")
    await server.bus.open_stream("odd")
    await server.bus.publish("odd", encode(ClockTicked(elapsed_s=1.0)), msg_id="t1")
    await server.shows("odd")
    await server.has("one")
    with capture_logs() as logs:
        async with standing_by(server, tmp_path) as standing:
            await server.until("one", state="finished")
    assert standing.ending == "left"
    said = sorted(line["event"] for line in logs if line["log_level"] == "warning")
    assert said == ["run left alone: it is not on the server, or does not begin as runs do"] * 2


@pytest.mark.parametrize("is_freed", [True, False], ids=["and recorded later", "and left unrecorded"])
async def test_a_run_is_led_while_its_folder_is_in_use(tmp_path: Path, *, is_freed: bool) -> None:
    server = Server()
    await server.has("one", rounds=60)
    folder = RunFolder(tmp_path / "one")
    folder.path.mkdir()
    other = Projection(folder.journal)
    with capture_logs() as logs:
        async with standing_by(server, tmp_path) as standing:
            with anyio.fail_after(PATIENCE_S):
                while not any("not recorded" in line["event"] for line in logs):  # noqa: ASYNC110 - a log tells nobody
                    await anyio.sleep(0.02)
            assert folder.journal.stat().st_size == 0
            if is_freed:
                other.close()
            await server.until("one", state="finished")
            with anyio.fail_after(PATIENCE_S):
                while standing.member.presence.busy:  # noqa: ASYNC110 - a member tells of its state, not of its jobs
                    await anyio.sleep(0.02)
    other.close()
    warnings = [(line["event"], line["tries_again"]) for line in logs if line["log_level"] == "warning"]
    assert warnings == [("run not recorded", True)] + [("run not recorded", False)] * (not is_freed)
    assert (read_run(folder).finished is not None) == is_freed
