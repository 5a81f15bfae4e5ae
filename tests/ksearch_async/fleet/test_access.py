"""Who a process is at a NATS server, and that no secret is shown while that is found out."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ksearch_async.fleet.access import options_for, read_credentials
from ksearch_async.follow.logs import without_secrets
from messages.base import ConfigError

URL = "nats://127.0.0.1:4222"
SECRET = "xyzzy-Plugh-2"  # noqa: S105 - looked for in what is shown


def private(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def said(error: pytest.ExceptionInfo[ConfigError]) -> str:
    return " ".join(traceback.format_exception(error.value))


def test_addresses_are_brought_into_one_form() -> None:
    given = options_for("localhost, tls://b:4333 ,nats://[::1]", {}, role="coder")
    assert given.servers == ("nats://localhost:4222", "tls://b:4333", "nats://[::1]:4222")
    assert (given.user, given.password, given.nkey_seed, given.role) == (None, None, None, "coder")


@pytest.mark.parametrize(
    "url", ["", " , ", "http://h", "nats://", "nats://h:99999", "nats://h/x", "nats://h?tls=1", "nats://[h"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"no server|no address"):
        options_for(url, {}, role="admin")


@pytest.mark.parametrize(
    "url",
    [
        f"nats://me:{SECRET}@h",
        f"nats://{SECRET}@h",
        f"me:{SECRET}@h",
        f"nats://h1,nats://me:{SECRET}@h:99999",
        f"tls://a:{SECRET}@[h",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="must not hold credentials") as error:
        options_for(url, {}, role="admin")
    assert SECRET not in said(error)
    assert "--credentials FILE" in said(error)


def test_user_and_password_come_from_the_environment_or_from_a_file(tmp_path: Path) -> None:
    direct = options_for(URL, {"KSEARCH_NATS_USER": "me", "KSEARCH_NATS_PASSWORD": SECRET}, role="coder")
    file = private(tmp_path / "password", SECRET + "\n")
    from_file = options_for(URL, {"KSEARCH_NATS_USER": "me", "KSEARCH_NATS_PASSWORD_FILE": str(file)}, role="coder")
    assert (direct.user, direct.password, direct.role) == ("me", SECRET, "coder")
    assert from_file == direct
    assert SECRET not in repr(direct)


def test_a_user_who_is_called_like_a_role_has_its_inbox() -> None:
    environment = {"KSEARCH_NATS_USER": "planner", "KSEARCH_NATS_PASSWORD": SECRET}
    assert options_for(URL, environment, role="watcher").role == "planner"


def test_a_credentials_file_says_who_and_counts_more_than_the_environment(tmp_path: Path) -> None:
    file = private(tmp_path / "evaluator", f'role = "evaluator"\nuser = "evaluator"\npassword = "{SECRET}"\n')
    environment = {"KSEARCH_NATS_USER": "other", "KSEARCH_NATS_PASSWORD": "no"}
    by_flag = options_for(URL, environment, role="watcher", credentials=file)
    assert (by_flag.user, by_flag.password, by_flag.role) == ("evaluator", SECRET, "evaluator")
    assert options_for(URL, environment | {"KSEARCH_NATS_CREDENTIALS": str(file)}, role="watcher") == by_flag
    assert SECRET not in repr(read_credentials(file))


def test_an_nkey_comes_from_a_file(tmp_path: Path) -> None:
    seed = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
    plain = private(tmp_path / "seed", seed + "\n")
    assert options_for(URL, {"KSEARCH_NATS_NKEY_FILE": str(plain)}, role="coder").nkey_seed == seed
    file = private(tmp_path / "coder", f'role = "coder"\nseed = "{seed}"\n')
    assert options_for(URL, {}, role="watcher", credentials=file).nkey_seed == seed


@pytest.mark.parametrize(
    ("environment", "missing"),
    [
        ({"KSEARCH_NATS_USER": "me"}, "a user without a password"),
        ({"KSEARCH_NATS_PASSWORD": SECRET}, "a password without a user"),
        (
            {"KSEARCH_NATS_USER": "me", "KSEARCH_NATS_PASSWORD_FILE": "/nowhere"},
            "cannot read the password in '/nowhere'",
        ),
        ({"KSEARCH_NATS_CREDENTIALS": "/nowhere"}, "cannot read the credentials in '/nowhere'"),
        ({"KSEARCH_NATS_NKEY_FILE": "/nowhere"}, "cannot read the nkey's seed in '/nowhere'"),
        ({"KSEARCH_NATS_CA": "/nowhere"}, "KSEARCH_NATS_CA='/nowhere': there is no such file"),
        ({"KSEARCH_NATS_CERT": __file__}, "certificate and its key go together"),
        ({"KSEARCH_NATS_PASSWORD": SECRET, "KSEARCH_NATS_PASSWORD_FILE": "x"}, "both set"),
    ],
)
def test_what_is_missing_is_named(environment: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError, match=missing) as error:
        options_for(URL, environment, role="coder")
    assert SECRET not in said(error)


@pytest.mark.parametrize(
    "text",
    [
        f"{SECRET}\n",
        f'password = "{SECRET}"\n',
        f'user = "a"\npasswort = "{SECRET}"\n',
        f'password = "{SECRET}\n',
        "",
        "\xff",
        "x" * 9000,
    ],
)
def test_a_file_that_holds_something_else_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    file.write_bytes(text.encode("latin-1"))
    file.chmod(0o600)
    with pytest.raises(ConfigError) as error:
        read_credentials(file)
    assert str(file) in str(error.value)
    assert SECRET not in said(error)


def test_a_file_that_others_can_read_gives_a_warning(tmp_path: Path) -> None:
    file = private(tmp_path / "coder", f'user = "a"\npassword = "{SECRET}"\n')
    with capture_logs() as lines:
        read_credentials(file)
        assert lines == []
        file.chmod(0o640)
        read_credentials(file)
    assert [line["event"] for line in lines] == ["credentials_readable_by_others"]
    assert SECRET not in str(lines)


def test_a_password_that_would_cross_the_network_in_the_clear_gives_a_warning(tmp_path: Path) -> None:
    environment = {"KSEARCH_NATS_USER": "me", "KSEARCH_NATS_PASSWORD": SECRET}
    with capture_logs() as lines:
        options_for("nats://127.0.0.1,nats://localhost", environment, role="coder")
        options_for("tls://far.example", environment, role="coder")
        options_for("nats://far.example", {}, role="coder")
        assert lines == []
        options_for("nats://far.example", environment, role="coder")
    assert [line["event"] for line in lines] == ["password_sent_in_the_clear"]


def test_encryption_begins_before_the_first_word(tmp_path: Path) -> None:
    ca = private(tmp_path / "ca.pem", "")
    assert options_for("tls://h", {}, role="coder").tls_first
    assert options_for("nats://h", {"KSEARCH_NATS_CA": str(ca)}, role="coder").tls_first
    assert not options_for("nats://h", {}, role="coder").tls_first


def test_a_secret_that_was_read_is_hidden_in_log_lines() -> None:
    options_for(URL, {"KSEARCH_NATS_USER": "me", "KSEARCH_NATS_PASSWORD": SECRET}, role="coder")
    assert SECRET not in without_secrets(f"something said {SECRET}")
