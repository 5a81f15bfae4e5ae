from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint
from structlog.testing import capture_logs

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.worker.member import LEFT_TTL_S, TTL_S, Member
from messages.base import BusError, Usage
from messages.events import CandidateWritten
from messages.presence import Served, WorkerState, node_key
from tests.actors.words import TARGET, memory_bus, presence, shown

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

KEY = node_key("builder", "builder-1")
ANSWER = CandidateWritten(
    job_id="j2",
    branch_id="b1",
    candidate=None,
    prompt="",
    answer="",
    model="m",
    usage=Usage(calls=1, prompt_tokens=100, completion_tokens=10),
    latency_s=2.5,
)


@asynccontextmanager
async def present(bus: MemoryBus, state: WorkerState = "ready") -> AsyncIterator[Member]:
    member = Member(bus, presence(state=state))
    async with anyio.create_task_group() as tasks:
        await tasks.start(member.keep)
        yield member
        tasks.cancel_scope.cancel()


class CountingBus(MemoryBus):
    """Notes when entries are put, and refuses them while it is away."""

    def __init__(self) -> None:
        super().__init__(lambda _: MemoryStore())
        self.puts_at: list[float] = []
        self.is_away = False

    async def put(self, key: str, value: bytes, *, revision: int, ttl_s: int | None = None) -> int:
        if self.is_away:
            raise BusError("no connection")
        self.puts_at.append(anyio.current_time())
        return await super().put(key, value, revision=revision, ttl_s=ttl_s)


async def test_a_process_is_shown_from_its_start_and_as_long_as_it_is_there() -> None:
    bus = memory_bus()
    async with present(bus):
        for _ in range(10):
            told = await shown(bus)
            assert told is not None
            assert (told.name, told.state, told.busy) == ("builder-1", "ready", ())
            await anyio.sleep(TTL_S)


async def test_a_process_that_dies_is_gone_after_its_time_to_live() -> None:
    bus = memory_bus()
    member = Member(bus, presence())
    with anyio.move_on_after(10, shield=True):
        await member._show(TTL_S)
    await anyio.sleep(TTL_S + 1)
    assert await shown(bus) is None


async def test_a_process_that_ends_is_shown_as_left_for_ten_minutes() -> None:
    bus = memory_bus()
    async with present(bus):
        await anyio.sleep(1)
    told = await shown(bus)
    assert told is not None
    assert told.state == "left"
    await anyio.sleep(LEFT_TTL_S - 1)
    assert await shown(bus) is not None
    await anyio.sleep(2)
    assert await shown(bus) is None


async def test_what_changes_is_shown_within_a_second_and_written_no_more_often_than_that() -> None:
    bus = CountingBus()
    async with present(bus) as member:
        for number in range(50):
            member.took(f"j{number}", "r1", attempt=1)
            await anyio.sleep(0.1)
        await anyio.sleep(1.01)
        told = await shown(bus)
        assert told is not None
        assert len(told.busy) == 50
        count = len(bus.puts_at)
        assert count <= 8
        await anyio.sleep(30)
        assert len(bus.puts_at) - count == pytest.approx(10, abs=1)


async def test_jobs_in_hand_and_what_was_done_are_shown() -> None:
    bus = memory_bus()
    async with present(bus) as member:
        member.took("j1", "r1", attempt=1)
        member.took("j2", "r2", attempt=2)
        await anyio.sleep(4)
        told = await shown(bus)
        assert told is not None
        assert [(busy.job_id, busy.run_id) for busy in told.busy] == [("j1", "r1"), ("j2", "r2")]
        assert told.tally.busy_s == pytest.approx(2 * told.tally.uptime_s)
        member.finished("j2", ANSWER)
        member.finished("j1", None, failed=True)
        tally = member.presence.tally
    assert (tally.done, tally.failed, tally.redelivered) == (1, 1, 1)
    assert tally.busy_s == pytest.approx(8.0)
    assert tally.uptime_s == pytest.approx(4.0)
    assert (tally.model_calls, tally.model_s, tally.prompt_tokens, tally.completion_tokens) == (1, 2.5, 100, 10)


async def test_states_are_shown_and_say_whether_jobs_are_taken() -> None:
    bus = memory_bus()
    async with present(bus, "proving") as member:
        assert not member.is_ready
        member.ready()
        assert (member.is_ready, member.presence.state) == (True, "ready")
        member.unfit("times nothing")
        assert (member.is_ready, member.presence.state, member.presence.detail) == (False, "unfit", "times nothing")
        member.proving("cpp")
        member.ready()
        member.serves((Served(language="cpp", target=TARGET),))
        member.leave()
        assert (member.is_ready, member.is_leaving, member.presence.state) == (False, True, "leaving")
        member.ready()
        assert member.is_leaving
        await anyio.sleep(1.1)
        told = await shown(bus)
        assert told is not None
        assert (told.state, len(told.served)) == ("leaving", 1)


async def test_a_hindrance_is_shown_and_makes_a_process_unfit_only_if_it_takes_nothing() -> None:
    async with present(memory_bus()) as member:
        member.hinder("r1: wrong key")
        assert (member.presence.state, member.presence.detail) == ("ready", "r1: wrong key")
        member.hinder("r1: wrong key", wholly=True)
        assert (member.presence.state, member.is_ready) == ("unfit", True)
        member.hinder("")
        assert (member.presence.state, member.presence.detail) == ("ready", "")


async def test_who_waits_for_a_change_of_state_is_told() -> None:
    async with present(memory_bus(), "proving") as member, anyio.create_task_group() as tasks:
        with anyio.fail_after(1):
            tasks.start_soon(member.changed)
            await checkpoint()
            member.ready()


async def test_an_entry_that_expired_or_was_written_without_a_reply_is_written_anew() -> None:
    bus = memory_bus()
    async with present(bus):
        entry = await bus.get(KEY)
        assert entry is not None
        await bus.delete(KEY, revision=entry.revision)
        await anyio.sleep(3.1)
        entry = await bus.get(KEY)
        assert entry is not None
        await bus.put(KEY, b"whose reply was lost", revision=entry.revision)
        await anyio.sleep(3.1)
        assert await shown(bus) is not None


async def test_a_bus_that_is_away_ends_nothing_and_is_told_once() -> None:
    bus = CountingBus()
    bus.is_away = True
    with capture_logs() as logs:
        async with present(bus):
            await anyio.sleep(100)
            bus.is_away = False
            await anyio.sleep(4)
            assert await shown(bus) is not None
    assert [line["log_level"] for line in logs] == ["warning", "info"]
