"""Configurations of a nats-server: it takes them, they hold no secret, and the files that do are private."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import bcrypt
import pytest

from actors.bus.nats.local_server import find_server
from ksearch_async.fleet.access import RIGHTS, TEAM, TeamRole, read_credentials
from ksearch_async.fleet.server_config import SignIn, TlsFiles, hashed, make_team, server_config, tls_block
from messages.base import ConfigError


@pytest.fixture
def team(tmp_path: Path) -> dict[TeamRole, SignIn]:
    return make_team(tmp_path / "credentials")


def is_valid(path: Path, config: str) -> bool:
    path.write_text(config)
    return subprocess.run([find_server(), "-t", "-c", path], capture_output=True, check=False).returncode == 0


def test_the_server_takes_it_and_it_holds_no_password(tmp_path: Path, team: dict[TeamRole, SignIn]) -> None:
    config = server_config(team)
    assert is_valid(tmp_path / "c", config)
    for role in TEAM:
        held = read_credentials(tmp_path / "credentials" / role)
        assert held.password not in config
        assert bcrypt.checkpw(held.password.encode(), team[role].password_hash.encode())


def test_secrets_lie_in_files_that_only_their_owner_reads(tmp_path: Path, team: dict[TeamRole, SignIn]) -> None:
    folder = tmp_path / "credentials"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == dict.fromkeys(TEAM, 0o600)


def test_secrets_differ_and_those_that_are_there_are_kept(tmp_path: Path, team: dict[TeamRole, SignIn]) -> None:
    folder = tmp_path / "credentials"
    before = {role: read_credentials(folder / role).password for role in TEAM}
    assert len(set(before.values())) == len(TEAM)
    (folder / "coder").write_text('role = "coder"\nuser = "writer"\npassword = "my own choice"\n')
    again = make_team(folder)
    assert {role: read_credentials(folder / role).password for role in TEAM} == before | {"coder": "my own choice"}
    assert again["coder"].user == "writer"


def test_nkeys_leave_the_server_without_any_secret(tmp_path: Path) -> None:
    pytest.importorskip("nkeys")
    team = make_team(tmp_path / "credentials", nkeys=True)
    config = server_config(team)
    assert is_valid(tmp_path / "c", config)
    for role in TEAM:
        assert team[role].nkey.startswith("U")
        assert team[role].nkey in config
        assert read_credentials(tmp_path / "credentials" / role).seed not in config


@pytest.mark.parametrize("password", ["", "ä" * 40, "a\0b"])
def test_a_password_of_which_bcrypt_would_see_only_a_part_is_refused(password: str) -> None:
    with pytest.raises(ConfigError):
        hashed(password)


def test_client_certificates_are_asked_for_if_there_is_a_ca(tmp_path: Path) -> None:
    files = TlsFiles(cert=tmp_path / "c.pem", key=tmp_path / "k.pem")
    assert "verify" not in tls_block(files)
    assert "handshake_first: true" in tls_block(files)
    assert "verify: true" in tls_block(TlsFiles(cert=files.cert, key=files.key, ca=tmp_path / "ca.pem"))


@pytest.mark.parametrize("user", ['a"b', "a\nb", "a\\b"])
def test_a_name_cannot_break_out_of_its_quotes(team: dict[TeamRole, SignIn], user: str) -> None:
    with pytest.raises(ConfigError, match="cannot stand in a server configuration"):
        server_config(team | {"coder": SignIn(user=user)})


def test_a_role_without_a_sign_in_is_refused(team: dict[TeamRole, SignIn]) -> None:
    del team["watcher"]
    with pytest.raises(ConfigError, match="no sign-in for watcher"):
        server_config(team)


def test_only_those_who_lead_share_an_account_with_the_streams() -> None:
    assert {role for role in TEAM if not RIGHTS[role].apart} == {"admin", "planner"}


def test_an_evaluator_puts_no_blobs() -> None:
    assert not any("blob" in subject for subject in RIGHTS["evaluator"].requests)
