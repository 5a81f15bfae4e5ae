"""Encrypted connections and client certificates, nkeys, and what is said where they do not fit."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
import trustme
from anyio.abc import SocketAttribute, SocketStream

from actors.bus.nats import open_nats
from ksearch_async.fleet.access import options_for
from ksearch_async.fleet.server_config import TlsFiles, make_team
from messages.base import BusError
from tests.ksearch_async.nats_servers import PATIENCE_S, Team, TeamServer, serve_team

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

SECRET = "xyzzy-Plugh-3"  # noqa: S105 - looked for in what is sent


class Certificates:
    """An authority, a server's certificate and a client's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.server = self._issue("server", "127.0.0.1")
        self.client = self._issue("client", "someone@example.org")

    def _issue(self, name: str, identity: str) -> tuple[Path, Path]:
        issued = self._authority.issue_cert(identity)
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(key))
        return cert, key

    def of_server(self, *, ask_clients: bool) -> TlsFiles:
        cert, key = self.server
        return TlsFiles(cert=cert, key=key, ca=self.ca if ask_clients else None)

    def environment(self, *, show: bool) -> dict[str, str]:
        cert, key = self.client
        shown = {"KSEARCH_NATS_CERT": str(cert), "KSEARCH_NATS_KEY": str(key)} if show else {}
        return {"KSEARCH_NATS_CA": str(self.ca), **shown}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def encrypted(tmp_path: Path, team: Team, certificates: Certificates) -> AsyncIterator[TeamServer]:
    tls, environment = certificates.of_server(ask_clients=False), certificates.environment(show=False)
    async with serve_team(tmp_path / "store", team, tls=tls, environment=environment) as server:
        yield server


async def refused(server: TeamServer, environment: dict[str, str], url: str = "") -> str:
    options = options_for(
        url or server.server.url, environment, role="evaluator", credentials=server.team.folder / "evaluator"
    )
    with anyio.fail_after(PATIENCE_S), pytest.raises(BusError) as error:
        async with open_nats(options):
            pass
    assert "\n" not in str(error.value)
    return "".join(traceback.format_exception_only(error.value))


async def test_with_the_authoritys_certificate_everything_works_encrypted(encrypted: TeamServer) -> None:
    assert encrypted.server.url.startswith("tls://")
    async with encrypted.bus("evaluator") as bus:
        await bus.put("node.evaluator.x", b"here", revision=0)
        await encrypted.server.kill()
        await encrypted.server.restart()
        assert set(await bus.entries("node.")) == {"node.evaluator.x"}


async def test_the_end_of_an_encrypted_connection_is_told_to_nobody(encrypted: TeamServer) -> None:
    credentials = str(encrypted.team.folder / "watcher")
    command = ["-m", "ksearch_async", "nodes", "--nats", encrypted.server.url, "--credentials", credentials]
    done = await anyio.run_process([sys.executable, *command], env=os.environ | encrypted.environment)
    assert done.stdout.startswith(b"no worker is there")
    assert done.stderr == b""


async def test_a_server_whose_certificate_nobody_signed_is_not_trusted(encrypted: TeamServer) -> None:
    assert "KSEARCH_NATS_CA" in await refused(encrypted, {})


async def test_a_certificate_of_another_host_is_not_trusted(encrypted: TeamServer) -> None:
    elsewhere = f"tls://localhost:{encrypted.server.port}"
    assert "CERTIFICATE_VERIFY_FAILED" in await refused(encrypted, encrypted.environment, elsewhere)


async def test_an_encrypted_server_is_not_spoken_to_in_the_clear(encrypted: TeamServer) -> None:
    assert "tls://" in await refused(encrypted, {}, f"nats://127.0.0.1:{encrypted.server.port}")


async def test_clients_without_a_certificate_are_turned_away_where_one_is_asked_for(
    tmp_path: Path, team: Team, certificates: Certificates
) -> None:
    tls, environment = certificates.of_server(ask_clients=True), certificates.environment(show=True)
    async with serve_team(tmp_path / "store", team, tls=tls, environment=environment) as server:
        async with server.bus("evaluator") as bus:
            assert await bus.entries("node.") == {}
        assert "KSEARCH_NATS_CERT" in await refused(server, certificates.environment(show=False))
        stranger = tmp_path / "strangers"
        stranger.mkdir()
        cert, key = Certificates(stranger).client
        await refused(
            server,
            {**certificates.environment(show=False), "KSEARCH_NATS_CERT": str(cert), "KSEARCH_NATS_KEY": str(key)},
        )


async def test_a_password_is_not_sent_to_who_answers_in_the_clear_though_tls_was_asked_for(
    certificates: Certificates,
) -> None:
    received = bytearray()

    async def pose_as_a_server(stream: SocketStream) -> None:
        async with stream:
            await stream.send(
                b'INFO {"server_id":"X","version":"2.15.1","max_payload":1048576,"auth_required":true}\r\n'
            )
            async for part in stream:
                received.extend(part)

    credentials = {"KSEARCH_NATS_USER": "evaluator", "KSEARCH_NATS_PASSWORD": SECRET}
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, pose_as_a_server)
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610
        for scheme, environment in (("tls", {}), ("nats", certificates.environment(show=False))):
            options = options_for(f"{scheme}://127.0.0.1:{port}", credentials | environment, role="evaluator")
            with anyio.fail_after(PATIENCE_S), pytest.raises(BusError):
                async with open_nats(msgspec.structs.replace(options, connect_s=0.5)):
                    pass
        tasks.cancel_scope.cancel()
    await listener.aclose()
    assert received
    assert SECRET.encode() not in received


async def test_nkeys_sign_in_without_the_server_knowing_a_secret(tmp_path: Path) -> None:
    pytest.importorskip("nkeys")
    folder = tmp_path / "credentials"
    team = Team(make_team(folder, nkeys=True), folder)
    async with serve_team(tmp_path / "store", team) as server:
        async with server.bus("evaluator") as bus:
            await bus.put("node.evaluator.x", b"here", revision=0)
        with pytest.raises(BusError, match="does not allow"):
            async with server.bus("evaluator") as bus:
                await bus.put("node.coder.x", b"here", revision=0)
        other = tmp_path / "other"
        make_team(other, nkeys=True)
        options = options_for(server.server.url, {}, role="evaluator", credentials=other / "evaluator")
        with anyio.fail_after(PATIENCE_S), pytest.raises(BusError, match="does not let us in"):
            async with open_nats(options):
                pass
