"""The links, the disk and the schedule that plays are made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.chaos.disk import NoDiskError, small_disk
from tests.chaos.links import HOST, Link
from tests.chaos.schedule import KINDS, schedule

SHORT_S, LONG_S = 0.2, 5.0


async def echo(client: SocketStream) -> None:
    async with client:
        async for received in client:
            await client.send(received)


async def is_broken(client: SocketStream) -> bool:
    with anyio.fail_after(LONG_S):
        try:
            await client.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
    return False


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    """Return a link to a server that says what it hears."""
    async with await anyio.create_tcp_listener(local_host=HOST) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        made = Link(int(listener.listeners[0].extra(SocketAttribute.local_port)))  # noqa: S610 - a socket, not a query
        await tasks.start(made.serve)
        yield made
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_stalled_link_holds_everything_back_until_it_heals(link: Link) -> None:
    async with await anyio.connect_tcp(HOST, link.port) as client:
        await client.send(b"one")
        assert await client.receive() == b"one"
        link.stall()
        await client.send(b"two")
        with anyio.move_on_after(SHORT_S) as waiting:
            await client.receive()
        assert waiting.cancelled_caught
        link.heal()
        with anyio.fail_after(LONG_S):
            assert await client.receive() == b"two"


@pytest.mark.anyio
async def test_a_cut_link_breaks_what_it_has_and_refuses_what_comes_until_it_heals(link: Link) -> None:
    async with await anyio.connect_tcp(HOST, link.port) as client:
        await client.send(b"one")
        assert await client.receive() == b"one"
        await link.cut()
        assert await is_broken(client)
    async with await anyio.connect_tcp(HOST, link.port) as client:
        assert await is_broken(client)
    link.heal()
    async with await anyio.connect_tcp(HOST, link.port) as client:
        await client.send(b"two")
        assert await client.receive() == b"two"


def test_a_small_disk_can_be_full_and_is_usable_again(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk", size_bytes=4 << 20) as disk:
            disk.fill()
            with pytest.raises(OSError, match="No space left"):
                (disk.path / "file").write_bytes(bytes(1 << 20))
            disk.free()
            (disk.path / "file").write_bytes(bytes(1 << 20))
    except NoDiskError as error:
        pytest.skip(str(error))
    assert not disk.path.exists()


def test_a_schedule_follows_from_its_seed_and_has_each_kind_before_any_comes_twice() -> None:
    blows = schedule(3, 150.0)
    assert blows == schedule(3, 150.0)
    assert blows != schedule(4, 150.0)
    assert {blow.kind for blow in blows[: len(KINDS)]} == set(KINDS)
    assert [blow.at_s for blow in blows] == sorted(blow.at_s for blow in blows)
    assert blows[-1].at_s <= 150.0
    worker_freezes = [blow.lasts_s for blow in blows if blow.kind == "freeze evaluator"]
    assert worker_freezes[0] > 30.0 > worker_freezes[1]
