"""What the page is served by, and what it shows: other processes, so that they can die by themselves."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60
"""The slowest host that runs these starts a browser in ten seconds."""


class WebServer:
    """A `ksearch web` in a process of its own. It can be killed, and started again at the same address."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self._process: subprocess.Popen[str] | None = None
        self._port = 0
        self.token = ""
        self.start()

    @property
    def address(self) -> str:
        """Of the page, without the token: it may be read, not steered."""
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        """Start it, and wait until it listens."""
        command = [sys.executable, "-m", "ksearch_async", "web", str(self._runs_dir), "--port", str(self._port)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "#token=" in line, f"ksearch web said {line!r}"
        address, _, self.token = line.split()[-1].partition("#token=")
        self._port = int(address.rstrip("/").rpartition(":")[2])

    def kill(self) -> None:
        """End it without warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


class LiveRun:
    """A run of another process that goes on as far as it is let; see `live_run`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process = process
        self.run_id = folder.name

    def let(self, calls: int) -> None:
        """Let it make model calls up to that many in all."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{calls}\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Let it make all the calls that it wants, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0


@contextmanager
def leading(folder: Path, *, rounds: int) -> Iterator[LiveRun]:
    """Lead a run in a folder, and end it with the context."""
    command = [sys.executable, "-m", "tests.browser.live_run", str(folder), str(rounds)]
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)
    run = LiveRun(process, folder)
    try:
        waited_for((folder / "journal.jsonl").exists, lambda: f"{folder.name} did not begin")
        yield run
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        assert process.stdin is not None
        process.stdin.close()


def waited_for(condition: Callable[[], bool], complaint: Callable[[], str]) -> None:
    """Wait for a condition that no event tells of."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)
