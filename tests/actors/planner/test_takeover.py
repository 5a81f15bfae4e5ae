"""Planners as processes over a real server: the one that leads is killed, frozen, cut off, and another one goes on."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from actors.bus.base import UnknownQueueError
from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import NatsServer, ServerSettings, serve_nats
from actors.bus.stream import body_of
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, state_hash
from actors.planner.history import fold
from actors.planner.jobs import queues_of
from messages.codec import Body, encode
from messages.events import RunStarted
from messages.facts import Decided
from messages.presence import decode_card, lease_key, run_key
from messages.settings import Budget, SearchSettings
from tests.actors.planner.hands import Hands
from tests.actors.planner.rig import DESCRIPTION, TARGET, TASK

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "taken-over"
TTL_S = 2
ROUNDS = 40
ROOT = Path(__file__).parents[3]


class Office:
    """A run on a server, its workers, and planner processes."""

    def __init__(self, server: NatsServer, bus: NatsBus, logs: Path) -> None:
        self.server = server
        self.bus = bus
        self.started = RunStarted(
            run_id=RUN,
            task=TASK,
            description=DESCRIPTION,
            target=TARGET,
            settings=SearchSettings(branches=4, budget=Budget(max_rounds=ROUNDS)),
            seed=7,
        )
        self.hands = Hands(bus, self.started, work_s=0.05)
        self.planners: dict[str, Process] = {}
        self._logs = logs

    async def start(self, *holders: str) -> None:
        for holder in holders:
            command = [sys.executable, "-m", "tests.actors.planner.planner_process"]
            with (self._logs / holder).open("wb") as log:
                self.planners[holder] = await anyio.open_process(
                    [*command, self.server.url, RUN, holder, str(TTL_S)], cwd=ROOT, stdout=log, stderr=log
                )

    def signal(self, holder: str, number: signal.Signals) -> None:
        os.kill(self.planners[holder].pid, number)

    def said(self, holder: str) -> str:
        return (self._logs / holder).read_text()

    def questions(self) -> dict[str, set[str]]:
        """Return the prompts (hashed) that each question was asked with."""
        found: dict[str, set[str]] = {}
        for holder in self.planners:
            for line in self.said(holder).splitlines():
                job_id, _, digest = line.partition(" ")
                if job_id.startswith(f"{RUN}-p"):
                    found.setdefault(job_id, set()).add(digest)
        return found

    async def leader(self) -> str:
        entry = await self.bus.get(lease_key(RUN))
        return entry.value.decode() if entry else ""

    async def until_leader(self, *wanted: str, within_s: float = 20.0) -> str:
        with anyio.fail_after(within_s):
            while True:
                if (found := await self.leader()) in wanted:
                    return found
                await anyio.sleep(0.05)

    async def records(self) -> list[tuple[int, str, Body]]:
        last, found = await self.bus.open_stream(RUN), []
        events = self.bus.events(RUN)
        async for posted in events:
            if (body := body_of(posted)) is not None:
                found.append((posted.seq, posted.msg_id, body))
            if posted.seq >= last:
                break
        await events.aclose()
        return found

    async def state(self) -> SearchState:
        return fold((seq, body) for seq, _, body in await self.records()).state

    async def until_rounds(self, rounds: int, within_s: float = 40.0) -> None:
        with anyio.fail_after(within_s):
            while True:
                if (await self.state()).rounds >= rounds:
                    return
                await anyio.sleep(0.1)

    async def until_said(self, holder: str, words: str) -> None:
        with anyio.fail_after(20):
            while True:
                if words in self.said(holder):
                    return
                await anyio.sleep(0.05)

    async def decided(self) -> list[tuple[int, str]]:
        """Return number and session of each decision."""
        return [
            (seq, msg_id.rpartition("-")[2]) for seq, msg_id, body in await self.records() if isinstance(body, Decided)
        ]

    async def assert_whole(self) -> None:
        """All events were decided on once, all jobs done once, the states agree, and nothing is left."""
        for holder, planner in self.planners.items():
            with anyio.fail_after(30):
                await planner.wait()
            assert "Traceback" not in self.said(holder)
        state, causes = SearchState(), Counter[int]()
        for _, _, body in await self.records():
            if isinstance(body, Decided):
                causes[body.cause] += 1
                for fact in body.facts:
                    state = evolve(state, fact)
                assert body.state_hash in (None, state_hash(state))
        assert set(causes.values()) == {1}, "an event was decided on twice"
        assert state == await self.state()
        assert (state.stopped_by, state.rounds) == ("rounds", ROUNDS)
        assert set(self.hands.done.values()) == {1}, "a job was done twice"
        assert {len(prompts) for prompts in self.questions().values()} == {1}, "a question changed when asked again"
        assert await self.leader() == ""
        entry = await self.bus.get(run_key(RUN))
        card = decode_card(entry.value) if entry else None
        assert card is not None
        assert card.state == "finished"
        for queue in queues_of(self.started):
            with pytest.raises(UnknownQueueError):
                await self.bus.submit(queue, b"", msg_id="x")


@asynccontextmanager
async def going(tmp_path: Path) -> AsyncIterator[Office]:
    settings = ServerSettings(store=tmp_path / "nats", sync="never")
    async with serve_nats(settings) as server, open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        office = Office(server, bus, tmp_path)
        await bus.open_stream(RUN)
        await bus.publish(RUN, encode(office.started), msg_id=f"{RUN}.started")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(office.hands.work)
                yield office
                tasks.cancel_scope.cancel()
        finally:
            for planner in office.planners.values():
                if planner.returncode is None:
                    planner.kill()
                with anyio.CancelScope(shield=True):
                    await planner.wait()


async def test_a_leader_that_is_killed_is_followed_by_a_standby_that_does_nothing_twice(tmp_path: Path) -> None:
    async with going(tmp_path) as office:
        await office.start("p1", "p2", "p3")
        left = {"p1", "p2", "p3"}
        for rounds in (8, 20):
            leader = await office.until_leader(*left)
            await office.until_rounds(rounds)
            office.signal(leader, signal.SIGKILL)
            left.discard(leader)
            await office.until_leader(*left)
        await office.until_rounds(ROUNDS)
        await office.assert_whole()
        assert len({session for _, session in await office.decided()}) == 3


@pytest.mark.long
async def test_a_leader_that_was_frozen_notices_that_it_leads_no_longer_and_does_nothing_more(tmp_path: Path) -> None:
    async with going(tmp_path) as office:
        await office.start("p1")
        await office.until_leader("p1")
        await office.start("p2")
        await office.until_rounds(10)
        office.signal("p1", signal.SIGSTOP)
        first = {session for _, session in await office.decided()}
        await office.until_leader("p2")
        office.signal("p1", signal.SIGCONT)
        await office.until_said("p1", "leads no longer; stands by")
        await office.until_rounds(ROUNDS)
        await office.assert_whole()
        taken_over_at = next(seq for seq, session in await office.decided() if session not in first)
        assert [seq for seq, session in await office.decided() if session in first and seq > taken_over_at] == []


@pytest.mark.long
async def test_planners_wait_for_a_server_that_crashed_and_go_on(tmp_path: Path) -> None:
    async with going(tmp_path) as office:
        await office.start("p1", "p2")
        await office.until_leader("p1", "p2")
        await office.until_rounds(10)
        await office.server.kill()
        await anyio.sleep(1.5 * TTL_S)  # longer than the lease: nobody leads when it is there again
        await office.server.restart()
        await office.until_rounds(ROUNDS)
        await office.assert_whole()


async def test_a_planner_that_is_told_to_end_while_the_server_is_away_ends(tmp_path: Path) -> None:
    async with going(tmp_path) as office:
        await office.start("p1")
        await office.until_leader("p1")
        await office.server.kill()
        await office.until_said("p1", "the server is away")
        office.signal("p1", signal.SIGINT)
        with anyio.fail_after(20):
            await office.planners["p1"].wait()
        await office.server.restart()
