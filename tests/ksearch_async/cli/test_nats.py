"""`ksearch nats`: a server as a process of its own, and what is written for one."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest

from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import find_server

pytestmark = pytest.mark.nats

KSEARCH = (sys.executable, "-m", "ksearch_async")
QUIET = {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_NATS")}


def ksearch(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*KSEARCH, *words]
    return subprocess.run(
        command, cwd=cwd, env={**QUIET, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def served(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*KSEARCH, "nats", "serve", "--port", "0", *words]
    process = subprocess.Popen(command, cwd=cwd, env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_valid(config: Path) -> bool:
    return subprocess.run([find_server(), "-t", "-c", config], capture_output=True, check=False).returncode == 0


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_says_where_it_listens_is_ready_for_runs_and_ends_when_asked(
    tmp_path: Path, number: signal.Signals
) -> None:
    with served("--json", cwd=tmp_path) as process:
        told = json.loads(first_line(process))
        servers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        nodes = ksearch("nodes", "--json", "--nats", told["url"], cwd=tmp_path)
        process.send_signal(number)
        out, said = process.communicate(timeout=30)
    assert (process.returncode, out, said) == (0, "", "")
    assert (tmp_path / told["store"] / "jetstream").is_dir()
    assert json.loads(nodes.stdout)["nodes"] == []
    assert not any(psutil.pid_exists(pid) for pid in servers)


def test_a_server_that_ends_by_itself_ends_the_command_with_an_error(tmp_path: Path) -> None:
    with served(cwd=tmp_path) as process:
        assert first_line(process).startswith("listening on nats://127.0.0.1:")
        [server] = [
            child for child in psutil.Process(process.pid).children(recursive=True) if "nats-server" in child.name()
        ]
        server.kill()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "error: the server ended" in said


def test_what_would_let_anybody_in_is_refused(tmp_path: Path) -> None:
    done = ksearch("nats", "serve", "--host", "0.0.0.0", "--port", "0", cwd=tmp_path)  # noqa: S104
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0].startswith("error: refused to listen on 0.0.0.0 without authentication")
    assert "ksearch nats init" in done.stderr


def test_a_team_is_written_served_and_signs_in(tmp_path: Path) -> None:
    written = ksearch("nats", "init", "--config", "team", "--json", cwd=tmp_path)
    told = json.loads(written.stdout)
    assert written.returncode == 0
    for path in [*told["configurations"], *told["credentials"].values()]:
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o600
    password = (tmp_path / "team" / "credentials" / "watcher").read_text().split('"')[-2]
    assert password not in written.stdout + written.stderr + (tmp_path / "team" / "nats-server.conf").read_text()
    with served("--config", "team", "--host", "0.0.0.0", cwd=tmp_path) as process:  # noqa: S104
        url = first_line(process).removeprefix("listening on ")
        signed_in = ksearch("nodes", "--nats", url, "--credentials", "team/credentials/watcher", cwd=tmp_path)
        stranger = ksearch("nodes", "--nats", url, "--json", cwd=tmp_path)
        mistaken = ksearch(
            "nodes",
            "--nats",
            url,
            cwd=tmp_path,
            KSEARCH_NATS_USER="watcher",
            KSEARCH_NATS_PASSWORD="wrong-4711",  # noqa: S106
        )
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert signed_in.returncode == 0
    assert (stranger.returncode, mistaken.returncode) == (3, 3)
    assert mistaken.stderr.splitlines() == [f"error: {url} does not let us in: wrong or missing credentials"]
    assert json.loads(stranger.stdout)["error"] == f"{url} does not let us in: wrong or missing credentials"


@pytest.mark.long
def test_whose_line_is_replaced_is_not_let_in_once_the_configuration_is_read_again(tmp_path: Path) -> None:
    ksearch("nats", "init", "--config", "team", cwd=tmp_path)
    config = tmp_path / "team" / "nats-server.conf"
    watcher = ("--credentials", "team/credentials/watcher")
    with served("--config", "team", cwd=tmp_path) as process:
        assert process.stderr is not None
        url = first_line(process).removeprefix("listening on ")
        assert ksearch("nodes", "--nats", url, *watcher, cwd=tmp_path).returncode == 0
        config.write_text(config.read_text().replace('user: "watcher"', 'user: "another"'))
        process.send_signal(signal.SIGHUP)
        said = next(line for line in process.stderr if "configuration" in line)
        assert said.startswith("the configuration was read again")
        tries = (ksearch("nodes", "--nats", url, *watcher, cwd=tmp_path).returncode for _ in range(20))
        assert next((code for code in tries if code), 0) == 3
        config.unlink()
        process.send_signal(signal.SIGHUP)
        assert "the configuration stays as it was" in next(line for line in process.stderr if "configuration" in line)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_credentials_that_others_can_read_are_told_on_stderr_only(tmp_path: Path) -> None:
    ksearch("nats", "init", "--config", "team", cwd=tmp_path)
    (tmp_path / "team" / "credentials" / "watcher").chmod(0o644)
    with served("--config", "team", cwd=tmp_path) as process:
        url = first_line(process).removeprefix("listening on ")
        done = ksearch("nodes", "--json", "--nats", url, "--credentials", "team/credentials/watcher", cwd=tmp_path)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert json.loads(done.stdout)["runs"] == []
    assert "credentials" in done.stderr
    assert "chmod 600" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["init"], "nothing to do"),
        (["init", "--nats", "nats://h", "--config", "d"], "--config writes files and --nats prepares a server"),
        (["init", "--nkeys"], "add --config FOLDER"),
        (["init", "--config", "d", "--tls-cert", "c.pem"], "--tls-cert and --tls-key go together"),
        (["init", "--config", "d", "--tls-cert", "c.pem", "--tls-key", "k.pem"], "there is no file 'c.pem'"),
        (["init", "--nats", "nats://me:xyzzy@h"], "must not hold credentials"),
        (["init", "--nats", "nats://h", "--replicas", "2"], "expected 1, 3 or 5"),
        (["serve", "--port", "70000"], "expected 0 to 65535"),
        (["serve", "--config", "none"], "cannot read the configuration 'none'"),
    ],
)
def test_bad_input_is_one_clear_line_and_leaves_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    done = ksearch("nats", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "xyzzy" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_not_written_over(tmp_path: Path) -> None:
    ksearch("nats", "init", "--config", "team", cwd=tmp_path)
    before = (tmp_path / "team" / "credentials" / "admin").read_text()
    again = ksearch("nats", "init", "--config", "team", cwd=tmp_path)
    assert again.returncode == 2
    assert "is there already" in again.stderr
    (tmp_path / "team" / "nats-server.conf").unlink()
    assert ksearch("nats", "init", "--config", "team", cwd=tmp_path).returncode == 0
    assert (tmp_path / "team" / "credentials" / "admin").read_text() == before


def test_a_configuration_can_be_printed(tmp_path: Path) -> None:
    done = ksearch("nats", "init", "--config", "-", cwd=tmp_path)
    (tmp_path / "c").write_text(done.stdout)
    assert is_valid(tmp_path / "c")
    assert sorted(path.name for path in (tmp_path / "credentials").iterdir())[0] == "admin"


def test_runs_are_listed_and_forgotten_by_their_names(tmp_path: Path) -> None:
    with served("--json", cwd=tmp_path) as process:
        url = json.loads(first_line(process))["url"]
        anyio.run(_make_runs, url)
        listed = ksearch("nats", "runs", "--json", "--nats", url, cwd=tmp_path)
        mistaken = ksearch("nats", "forget", "over", "ovr", "--nats", url, cwd=tmp_path)
        done = ksearch("nats", "forget", "over", "--nats", url, cwd=tmp_path)
        left = ksearch("nats", "runs", "--nats", url, cwd=tmp_path)
        last = ksearch("nats", "forget", "begun", "--json", "--nats", url, cwd=tmp_path)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    runs = {run["run"]: run for run in json.loads(listed.stdout)["runs"]}
    assert {name: (run["state"], run["events"]) for name, run in runs.items()} == {
        "over": (None, 1),
        "begun": (None, 0),
    }
    assert (mistaken.returncode, mistaken.stdout) == (2, "")
    assert mistaken.stderr.startswith("error: no run 'ovr' on this server")
    assert (done.returncode, done.stdout, done.stderr) == (0, "forgotten: over\n", "")
    assert [line.split()[0] for line in left.stdout.splitlines()] == ["RUN", "begun"]
    assert (last.returncode, json.loads(last.stdout)) == (0, {"forgotten": ["begun"]})


async def _make_runs(url: str) -> None:
    """Make a run that has an event and one that was killed before it had any."""
    async with open_nats(NatsOptions(servers=(url,))) as bus:
        for run_id in ("over", "begun"):
            await bus.open_stream(run_id)
        await bus.publish("over", b"event", msg_id="e1")


def test_to_forget_a_run_must_be_named(tmp_path: Path) -> None:
    done = ksearch("nats", "forget", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no run is named")


def test_a_run_signs_in_with_the_file_that_is_named(tmp_path: Path) -> None:
    ksearch("nats", "init", "--config", "team", cwd=tmp_path)
    with served("--config", "team", cwd=tmp_path) as process:
        run = ("run", "rmsnorm_silu", "--nats", first_line(process).removeprefix("listening on "))
        missing = ksearch(*run, "--credentials", "none", cwd=tmp_path)
        watcher = ksearch(*run, "--credentials", "team/credentials/watcher", cwd=tmp_path)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert (missing.returncode, watcher.returncode) == (2, 3)
    assert missing.stderr.startswith("error: cannot read the credentials in 'none'")
    assert "does not allow 'watcher'" in watcher.stderr
    assert list((tmp_path / "runs").glob("*")) == []
