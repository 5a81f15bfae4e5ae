"""The command that serves the dashboard, as a process of its own."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from actors.bus.journal import read_journal
from ksearch_async.cli.web import web_command
from messages.base import ConfigError
from tests.browser.serving import PATIENCE_S, WebServer, leading, waited_for
from tests.ksearch_async.stories import RUN_ID, on_disk, story
from tests.ksearch_async.test_cli import ksearch

TOKEN = "chosen-by-somebody"  # noqa: S105 - of tests
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_")}


@contextmanager
def served(*words: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command; it is killed if the test did not end it."""
    command = [sys.executable, "-m", "ksearch_async", "web", "--port", "0", *words]
    env = {**ENVIRONMENT, **environment}
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_prints_one_address_serves_and_ends_quietly_though_somebody_watches(tmp_path: Path) -> None:
    on_disk(tmp_path / "runs", story())
    with served(cwd=tmp_path) as process:
        said = first_line(process)
        assert said.startswith("listening on http://127.0.0.1:")
        address, _, token = said.removeprefix("listening on ").partition("#token=")
        history = httpx.get(f"{address}api/runs/{RUN_ID}/history").json()
        steers = httpx.get(f"{address}api/server", headers={"Authorization": f"Bearer {token}"}).json()["can_steer"]
        with httpx.stream("GET", f"{address}api/runs/{RUN_ID}/updates") as watching:
            assert next(watching.iter_lines())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "", "")
    assert history["last_seq"] == len(story())
    assert steers
    assert len(token) >= 32


def test_json_is_one_object_and_a_token_lets_other_hosts_in_and_nobody_without_it(tmp_path: Path) -> None:
    on_disk(tmp_path, story())
    everywhere = "0.0.0.0"  # noqa: S104 - that is what is tried
    with served(str(tmp_path), "--json", "--host", everywhere, cwd=tmp_path, KSEARCH_WEB_TOKEN=TOKEN) as process:
        told = json.loads(first_line(process))
        runs = f"http://127.0.0.1:{told['port']}/api/runs"
        refused = httpx.get(runs)
        shown = httpx.get(runs, headers={"Authorization": f"Bearer {TOKEN}"})
        named = httpx.get(runs, headers={"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"})
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert told["url"] == f"http://{socket.gethostname()}:{told['port']}/#token={TOKEN}"
    assert (told["runs_dir"], told["nats"]) == (str(tmp_path), None)
    assert (refused.status_code, shown.status_code, named.status_code) == (401, 200, 421)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("host", "token", "said"),
    [
        ("0.0.0.0", None, "--host 0.0.0.0: without a token the dashboard is for this host alone"),  # noqa: S104
        ("::", None, "--host ::: without a token"),
        ("10.0.0.7", None, "--host 10.0.0.7: without a token"),
        ("localhost.evil.example", None, "without a token"),
        ("127.0.0.1", "short", "--token: expected 16 or more"),
        ("127.0.0.1", "my own passphrase with blanks", "--token: expected 16 or more"),
        ("127.0.0.1", "", "--token: expected 16 or more"),
    ],
)
def test_neither_other_hosts_without_a_token_nor_a_bad_token(
    host: str, token: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KSEARCH_WEB_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=re.escape(said)) as raised:
        web_command(host=host, token=token, port=0)
    assert raised.value.__notes__
    assert not token or token not in f"{raised.value} {raised.value.__notes__}"


def test_no_folder_no_port_and_a_port_that_is_taken_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no folder"):
        web_command(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="expected 0 to 65535, not 70000"):
        web_command(tmp_path, port=70000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = f"cannot listen on 127.0.0.1 port {port}: {os.strerror(errno.EADDRINUSE)}"
        with pytest.raises(ConfigError, match=re.escape(said)) as raised:
            web_command(tmp_path, port=port)
    assert raised.value.__notes__ == ["--port 0 takes a free one"]


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    done = ksearch("web", "--port", "0", "--nats", f"nats://127.0.0.1:{port}", cwd=tmp_path)
    assert done.returncode == 3
    assert str(port) in done.stderr


class Watcher(threading.Thread):
    """Reads a run's updates as a browser does: whenever the connection breaks, it comes again with the last id."""

    def __init__(self, path: str) -> None:
        super().__init__(daemon=True)
        self._path = path
        self.seqs: list[int] = []
        self.connections = 0
        self.is_done = False

    def run(self) -> None:
        while not self.is_done:
            try:
                self._watch()
            except httpx.HTTPError:
                continue

    def _watch(self) -> None:
        headers = {"Last-Event-ID": str(self.seqs[-1])} if self.seqs else {}
        with httpx.stream("GET", self._path, headers=headers, timeout=PATIENCE_S) as response:
            self.connections += 1
            for line in response.iter_lines():
                if line.startswith("id: "):
                    self.seqs.append(int(line[4:]))
                if line.startswith("data: ") and _is_end(json.loads(line[6:])):
                    self.is_done = True
                    return


def _is_end(update: dict[str, Any]) -> bool:
    return bool(update.get("totals", {}).get("standing") == "finished")


def test_a_dashboard_that_dies_and_comes_back_while_a_run_goes_on_has_its_watchers_miss_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "r1"
    with leading(folder, rounds=8) as run:
        server = WebServer(tmp_path)
        try:
            watcher = Watcher(f"{server.address}api/runs/r1/updates")
            watcher.start()
            run.let(5)
            waited_for(lambda: len(watcher.seqs) > 8, lambda: f"only {watcher.seqs} came")
            server.kill()
            known = len(list(read_journal(folder / "journal.jsonl")))
            run.let(12)
            waited_for(
                lambda: len(list(read_journal(folder / "journal.jsonl"))) > known, lambda: "the run does not go on"
            )
            server.start()
            waited_for(lambda: len(watcher.seqs) > known, lambda: f"nothing came after {watcher.seqs[-1]}")
            run.finish()
            watcher.join(PATIENCE_S)
        finally:
            server.kill()
    assert watcher.is_done
    assert watcher.connections == 2
    assert watcher.seqs == [record.seq for record in read_journal(folder / "journal.jsonl")]
