from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from actors.bus.memory import MemoryBus
from actors.worker.taking import Board, SharedQueues, queue_of
from messages.base import BusError
from messages.presence import encode_entry, run_key
from tests.actors.words import builds, card, memory_bus, put_card

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]


@asynccontextmanager
async def followed(bus: MemoryBus) -> AsyncIterator[Board]:
    board = Board(bus)
    async with anyio.create_task_group() as tasks:
        await tasks.start(board.follow)
        yield board
        tasks.cancel_scope.cancel()


async def test_the_board_shows_the_runs_that_go_on_from_the_start() -> None:
    bus = memory_bus()
    await put_card(bus, card("r1"))
    await put_card(bus, msgspec.structs.replace(card("r2"), state="finished"))
    await put_card(bus, msgspec.structs.replace(card("r3"), state="paused"))
    async with followed(bus) as board:
        assert set(board.cards) == {"r1", "r3"}


async def test_a_run_that_comes_changes_and_goes_is_noticed_within_a_second() -> None:
    bus = memory_bus()
    async with followed(bus) as board:
        for told in (card("r1"), card("r1", weight=3)):
            await put_card(bus, told)
            with anyio.fail_after(1.1):
                await board.changed()
            assert board.cards == {"r1": told}
        await put_card(bus, msgspec.structs.replace(card("r1"), state="finished"))
        with anyio.fail_after(1.1):
            await board.changed()
        assert board.cards == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (run_key("r2"), b"junk"),
        (run_key("r2"), encode_entry(card("r1"))),
        (run_key("r2"), encode_entry(msgspec.structs.replace(card("r2"), tier="two words"))),
        ("run.R2", encode_entry(msgspec.structs.replace(card("r2"), run_id="R2"))),
    ],
    ids=["junk", "another run's", "names no queue", "names no run"],
)
async def test_an_entry_that_is_no_card_of_its_run_is_left_out_and_told_of_once(key: str, value: bytes) -> None:
    bus = memory_bus()
    await put_card(bus, card("r1"))
    await bus.put(key, value, revision=0)
    with capture_logs() as logs:
        async with followed(bus) as board:
            await anyio.sleep(10)
            assert set(board.cards) == {"r1"}
    assert [line["key"] for line in logs] == [key]


class LameBus(MemoryBus):
    """A bus whose entries cannot be read for a while."""

    is_away = False

    async def entries(self, prefix: str):  # type: ignore[no-untyped-def]  # noqa: ANN201
        if self.is_away:
            raise BusError("no connection")
        return await super().entries(prefix)


async def test_while_the_bus_is_away_the_runs_are_those_that_were_there_and_it_is_told_once() -> None:
    bus = LameBus(lambda _: pytest.fail("no stream is opened"))
    await put_card(bus, card("r1"))
    with capture_logs() as logs:
        async with followed(bus) as board:
            bus.is_away = True
            await anyio.sleep(10)
            assert set(board.cards) == {"r1"}
            bus.is_away = False
            await put_card(bus, card("r2"))
            await anyio.sleep(1.1)
            assert set(board.cards) == {"r1", "r2"}
    assert [line["log_level"] for line in logs] == ["warning", "info"]


def test_each_role_has_its_queue() -> None:
    told = msgspec.structs.replace(card("r1"), tier="large")
    assert queue_of("coder", told) == "ks.job.write.large.any.r1"
    assert queue_of("builder", told) == "ks.job.build.x86-64.cpp.r1"
    assert queue_of("evaluator", told) == "ks.job.evaluate.x86-64.cpp.r1"


async def test_shared_queues_are_those_of_the_runs_that_the_worker_serves() -> None:
    bus = memory_bus()
    for run_id in ("r1", "r2", "other"):
        await put_card(bus, card(run_id))
    async with followed(bus) as board:
        queues = SharedQueues(board, role="builder", serves=lambda told: told.run_id != "other")
        assert set(queues.now()) == {builds("r1"), builds("r2")}


async def test_who_waits_for_other_queues_hears_of_them_and_not_of_a_runs_progress() -> None:
    bus = memory_bus()
    await put_card(bus, card("r1"))
    async with followed(bus) as board:
        queues = SharedQueues(board, role="builder", serves=lambda _: True)
        with anyio.move_on_after(10) as waited:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(queues.changed, queues.now())
                await put_card(bus, msgspec.structs.replace(card("r1"), rounds=7))
        assert waited.cancelled_caught
        await put_card(bus, card("r2"))
        with anyio.fail_after(1.1):
            await queues.changed((builds("r1"),))
        with anyio.fail_after(0):
            await queues.changed((builds("r1"),))


async def test_who_was_served_less_is_asked_first_by_weight() -> None:
    bus = memory_bus()
    await put_card(bus, card("r1", weight=3))
    await put_card(bus, card("r2"))
    async with followed(bus) as board:
        queues = SharedQueues(board, role="builder", serves=lambda _: True)
        got = []
        for _ in range(40):
            order = queues.now()
            queues.took(order[0], order)
            queues.charge(order[0], 2.0)
            got.append(order[0])
    assert got.count(builds("r1")) == pytest.approx(30, abs=2)
