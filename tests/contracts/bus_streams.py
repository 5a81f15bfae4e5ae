"""What every bus promises of its event streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import anyio
import pytest

from actors.bus.base import MAX_EVENT_BYTES, Bus, ConflictError, Posted, UnknownQueueError
from messages.base import BusError
from messages.codec import decode_body, encode
from messages.events import ClockTicked, StopRequested
from messages.facts import Decided
from tests.contracts.bus_words import RUN


def event(number: int) -> bytes:
    return encode(ClockTicked(elapsed_s=float(number)))


def number_of(posted: Posted) -> float:
    body = decode_body(posted.payload)
    assert isinstance(body, ClockTicked)
    return body.elapsed_s


def decision(cause: int) -> bytes:
    return encode(Decided(cause=cause, facts=()))


async def read(bus: Bus, count: int, *, after: int = 0) -> list[Posted]:
    found: list[Posted] = []
    with anyio.fail_after(5):
        async with aclosing(bus.events(RUN, after=after)) as events:
            async for posted in events:
                found.append(posted)
                if len(found) == count:
                    break
    return found


class StreamContract:
    """Needs the fixtures `bus` and `restart` (ends the bus and gives another one over the same streams)."""

    async def test_events_are_read_in_order_from_the_first(self, bus: Bus) -> None:
        assert await bus.open_stream(RUN) == 0
        seqs = [await bus.publish(RUN, event(number), msg_id=f"m{number}") for number in range(300)]
        assert seqs == sorted(set(seqs))
        found = await read(bus, 300)
        assert [number_of(posted) for posted in found] == [float(number) for number in range(300)]
        assert [(posted.seq, posted.msg_id) for posted in found] == [(seq, f"m{n}") for n, seq in enumerate(seqs)]
        assert all(posted.at for posted in found)

    async def test_what_travels_beside_an_event_reaches_its_readers(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(1), msg_id="m1", headers={"traceparent": "00-a-b-01"})
        await bus.publish(RUN, event(2), msg_id="m2")
        assert [dict(posted.headers) for posted in await read(bus, 2)] == [{"traceparent": "00-a-b-01"}, {}]

    async def test_a_reader_may_begin_anywhere_and_as_often_as_it_likes(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        seqs = [await bus.publish(RUN, event(number), msg_id=f"m{number}") for number in range(300)]
        for place in (0, 1, 150, 298):
            found = await read(bus, 299 - place, after=seqs[place])
            assert [posted.seq for posted in found] == seqs[place + 1 :]

    async def test_readers_follow_what_is_published_later_each_at_its_own_pace(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        await bus.publish(RUN, event(0), msg_id="m0")
        found: dict[float, list[str]] = {0.0: [], 0.01: []}

        async def reader(pause_s: float) -> None:
            async with aclosing(bus.events(RUN)) as events:
                async for posted in events:
                    found[pause_s].append(posted.msg_id)
                    if len(found[pause_s]) == 10:
                        return
                    await anyio.sleep(pause_s)

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                for pause_s in found:
                    tasks.start_soon(reader, pause_s)
                await anyio.sleep(0.01)
                for number in range(1, 10):
                    await bus.publish(RUN, event(number), msg_id=f"m{number}")
        assert list(found.values()) == [[f"m{number}" for number in range(10)]] * 2

    async def test_concurrent_publishers_get_distinct_places_and_lose_nothing(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        seqs: dict[str, int] = {}

        async def publisher(name: str) -> None:
            for number in range(20):
                seqs[f"{name}{number}"] = await bus.publish(RUN, event(number), msg_id=f"{name}{number}")

        async with anyio.create_task_group() as tasks:
            for name in "abcd":
                tasks.start_soon(publisher, name)
        assert {posted.msg_id: posted.seq for posted in await read(bus, 80)} == seqs
        assert len(set(seqs.values())) == 80

    async def test_an_event_is_found_by_its_id(self, bus: Bus, restart: Callable[[], Awaitable[Bus]]) -> None:
        await bus.open_stream(RUN)
        assert await bus.find(RUN, "r1-w1.r") is None
        seq = await bus.publish(RUN, event(1), msg_id="r1-w1.r")
        await bus.publish(RUN, event(2), msg_id="r1-w1.r2")
        assert await bus.find(RUN, "r1-w1.r") == seq
        bus = await restart()
        await bus.open_stream(RUN)
        assert await bus.find(RUN, "r1-w1.r") == seq
        with pytest.raises(UnknownQueueError):
            await bus.find("r2", "r1-w1.r")

    async def test_an_event_is_stored_once_under_its_id(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, event(1), msg_id="m1")
        await bus.publish(RUN, event(2), msg_id="m2")
        assert await bus.publish(RUN, event(9), msg_id="m1") == first
        assert [number_of(posted) for posted in await read(bus, 2)] == [1.0, 2.0]
        assert await bus.publish(RUN, event(3), msg_id="m3") > first + 1

    async def test_a_published_event_survives_a_restart_with_its_place_and_stamp(
        self, bus: Bus, restart: Callable[[], Awaitable[Bus]]
    ) -> None:
        await bus.open_stream(RUN)
        for number in range(5):
            await bus.publish(RUN, event(number), msg_id=f"m{number}")
        before = await read(bus, 5)
        bus = await restart()
        assert await bus.open_stream(RUN) == before[-1].seq
        assert await read(bus, 5) == before

    async def test_an_id_is_known_after_a_restart(self, bus: Bus, restart: Callable[[], Awaitable[Bus]]) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, event(1), msg_id="m1")
        last = await bus.publish(RUN, event(2), msg_id="m2")
        bus = await restart()
        await bus.open_stream(RUN)
        assert await bus.publish(RUN, event(1), msg_id="m1") == first
        assert await bus.publish(RUN, event(3), msg_id="m3") > last

    async def test_a_second_planner_cannot_decide(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        cause = await bus.publish(RUN, event(1), msg_id="m1")
        first = await bus.publish(RUN, decision(cause), msg_id="d1", expected_last_decision=0)
        with pytest.raises(ConflictError):
            await bus.publish(RUN, decision(cause), msg_id="d2", expected_last_decision=0)
        await bus.publish(RUN, event(2), msg_id="m2")
        second = await bus.publish(RUN, decision(cause), msg_id="d3", expected_last_decision=first)
        assert [posted.msg_id for posted in await read(bus, 4)] == ["m1", "d1", "m2", "d3"]
        assert second > first

    async def test_a_decision_published_again_is_the_same_decision(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0)
        assert await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0) == first

    async def test_the_last_decision_is_known_after_a_restart(
        self, bus: Bus, restart: Callable[[], Awaitable[Bus]]
    ) -> None:
        await bus.open_stream(RUN)
        first = await bus.publish(RUN, decision(1), msg_id="d1", expected_last_decision=0)
        await bus.publish(RUN, event(1), msg_id="m1")
        bus = await restart()
        await bus.open_stream(RUN)
        with pytest.raises(ConflictError):
            await bus.publish(RUN, decision(2), msg_id="d2", expected_last_decision=0)
        assert await bus.publish(RUN, decision(2), msg_id="d2", expected_last_decision=first) > first

    async def test_large_events_are_read_as_they_were_published_in_their_place(
        self, bus: Bus, restart: Callable[[], Awaitable[Bus]]
    ) -> None:
        await bus.open_stream(RUN)
        sizes = {"m1": 10, "m2": (1 << 20) - 100, "m3": (1 << 20) + 1, "m4": MAX_EVENT_BYTES - 100, "m5": 10}
        payloads = {msg_id: encode(StopRequested(reason="x" * size)) for msg_id, size in sizes.items()}
        for msg_id, payload in payloads.items():
            await bus.publish(RUN, payload, msg_id=msg_id)
        bus = await restart()
        await bus.open_stream(RUN)
        found = await read(bus, len(sizes))
        assert {posted.msg_id: posted.payload for posted in found} == payloads

    async def test_an_event_that_is_too_large_is_refused_and_leaves_nothing(self, bus: Bus) -> None:
        await bus.open_stream(RUN)
        with pytest.raises(BusError, match="bytes"):
            await bus.publish(RUN, bytes(MAX_EVENT_BYTES + 1), msg_id="m1")
        await bus.publish(RUN, event(1), msg_id="m1")
        assert [number_of(posted) for posted in await read(bus, 1)] == [1.0]

    async def test_a_stream_that_was_not_opened_is_an_error(self, bus: Bus) -> None:
        with pytest.raises(UnknownQueueError):
            await bus.publish(RUN, event(1), msg_id="m1")
