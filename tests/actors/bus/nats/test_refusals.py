"""What a server refuses is said with the reason, and whoever waits for a server that is gone hears of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from actors.bus.base import Bus
from actors.bus.nats import NatsBus, NatsOptions, open_nats
from actors.bus.nats.local_server import ServerSettings, serve_nats
from messages.base import BusError
from tests.actors.bus.nats.conftest import Server
from tests.actors.bus.nats.words import PATIENCE_S, follow, spec
from tests.contracts.bus_streams import event
from tests.contracts.bus_words import QUEUE, RUN

pytestmark = [pytest.mark.anyio, pytest.mark.nats]


async def fill(bus: Bus, run_id: str) -> None:
    for number in range(1000):
        await bus.publish(run_id, bytes(500_000), msg_id=f"m{number}")


async def test_a_full_store_is_said_and_passes(tmp_path: Path) -> None:
    config = "accounts { A { jetstream { max_store: 6MB }, users: [{ user: a, password: b }] } }"
    async with serve_nats(ServerSettings(store=tmp_path, sync="never", config=config)) as server:
        options = NatsOptions(servers=(server.url,), user="a", password="b", patience_s=1.0)  # noqa: S106
        async with open_nats(options) as bus:
            await bus.prepare()
            await bus.open_stream(RUN)
            await bus.open_stream("r2")
            with pytest.raises(BusError, match="no room"):
                await fill(bus, "r2")
            with pytest.raises(BusError, match="no room"):
                await bus.publish(RUN, bytes(900_000), msg_id="m")
            await bus.delete_run("r2")
            assert await bus.publish(RUN, event(1), msg_id="m1")


async def test_what_is_not_allowed_is_said_at_once_with_its_subject(tmp_path: Path) -> None:
    config = """accounts { A { jetstream: enabled, users: [
      { user: admin, password: a },
      { user: evaluator, password: b, permissions: {
          publish: { allow: ["$JS.API.STREAM.INFO.*", "ks.evt.*.evaluator.>"] },
          subscribe: { allow: ["_INBOX_evaluator.>"] } } } ] } }"""
    async with serve_nats(ServerSettings(store=tmp_path, sync="never", config=config)) as server:

        def options(role: str, password: str, user: str) -> NatsOptions:
            return NatsOptions(servers=(server.url,), role=role, user=user, password=password)

        async with open_nats(options("admin", "a", "admin")) as bus:
            await bus.prepare()
            await bus.open_stream(RUN)
            await bus.declare_queue(spec())
        with anyio.fail_after(4):
            async with open_nats(options("evaluator", "b", "evaluator")) as bus:
                assert await bus.publish(RUN, event(1), msg_id="m1", role="evaluator")
                with pytest.raises(BusError, match=r"ks\.evt\.r1\.planner\.m2"):
                    await bus.publish(RUN, event(2), msg_id="m2")
                with pytest.raises(BusError, match=r"ks\.job\.write\.default\.any\.r1\.j1"):
                    await bus.submit(QUEUE, b"", msg_id="j1")
                with pytest.raises(BusError, match=r"msg\.next\.ks_job_write_default_any_r1"):
                    await bus.pull(QUEUE)
            with pytest.raises(BusError, match="credentials"):
                async with open_nats(options("admin", "wrong", "admin")):
                    pass
            with pytest.raises(BusError, match="_INBOX_planner"):
                async with open_nats(options("planner", "b", "evaluator")) as bus:
                    await bus.publish(RUN, event(1), msg_id="m3", role="evaluator")


async def test_whose_user_was_taken_away_is_told_so(tmp_path: Path) -> None:
    def settings(user: str, port: int = 0) -> ServerSettings:
        config = f"accounts {{ A {{ jetstream: enabled, users: [{{ user: {user}, password: b }}] }} }}"
        return ServerSettings(store=tmp_path, sync="never", config=config, port=port)

    async with AsyncExitStack() as until_the_end:
        async with serve_nats(settings("a")) as server:
            options = NatsOptions(servers=(server.url,), user="a", password="b")  # noqa: S106
            bus = await until_the_end.enter_async_context(open_nats(options))
            await bus.prepare()
        with capture_logs() as logs, anyio.fail_after(PATIENCE_S):
            async with serve_nats(settings("z", server.port)):
                while not any("missing credentials" in str(entry.get("error")) for entry in logs):  # noqa: ASYNC110
                    await anyio.sleep(0.01)


async def test_nobody_there_is_said(server: Server) -> None:
    async with open_nats(server.options(patience_s=0.5)) as bus:
        with pytest.raises(BusError, match="not prepared"):
            await bus.put("k", b"", revision=0)
        await server.kill()
        try:
            with pytest.raises(BusError, match="tried for"):
                await bus.get("k")
            with pytest.raises(BusError, match="cannot connect"):
                async with open_nats(server.options()):
                    pass
        finally:
            await server.start_again()


async def test_a_client_that_the_server_throws_out_ends_all_waiting(bus: NatsBus) -> None:
    await bus.declare_queue(spec())
    await bus.open_stream(RUN)
    ended: list[str] = []

    async def ends(wait: Callable[[], Awaitable[object]]) -> None:
        try:
            await wait()
        except BusError as error:
            ended.append(str(error))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends, lambda: bus.pull(QUEUE))
            tasks.start_soon(ends, lambda: follow(bus, 1))
            tasks.start_soon(ends, lambda: bus.next_dead_letter(RUN))
            await anyio.sleep(0.3)
            transport = bus._connection._client._transport
            assert transport is not None
            transport.write(b"NONSENSE\r\n")
    assert len(ended) == 3
    assert all("is over" in words for words in ended)
    with pytest.raises(BusError, match="is over"):
        await bus.get("k")
