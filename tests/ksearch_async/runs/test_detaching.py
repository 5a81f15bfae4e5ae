"""A search that goes on when its terminal is gone, and is watched and stopped from another one."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE, CompletedProcess

import anyio
import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from anyio.abc import ByteReceiveStream
from anyio.streams.buffered import BufferedByteReceiveStream

from ksearch_async.runs.folder import RunFolder, read_run
from tests.actors.llm.endpoint import Endpoint, Reply, completion, endpoint
from tests.evaluators.programs.words import PROGRAM, task_in
from tests.ksearch_async.test_cli import FAILING_PROBLEM

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

LONGEST_S = 200
ON_A_TERMINAL = (
    "import os, subprocess, sys\n"
    "os.login_tty(int(sys.argv[1]))\n"
    "code = subprocess.call(sys.argv[3:])\n"
    "os.write(int(sys.argv[2]), str(code).encode())\n"
    "sys.stdin.read()\n"
)
"""A shell's part: it owns the terminal, runs a command on it, and stays until the terminal is gone."""


class Answers:
    """Better programs each time; those from one number on only once they may."""

    def __init__(self, held_from: int) -> None:
        self.may = anyio.Event()
        self._held_from = held_from

    def __call__(self, number: int) -> Reply:
        reply = completion(f"```python\n{PROGRAM.replace('# body', f'return {number + 1}')}```\n")
        return msgspec.structs.replace(reply, waits_for=self.may) if number >= self._held_from else reply


def command(url: str, *more: str) -> list[str]:
    task = ("run", "initial.py", "--score-with", "evaluator.py", "--run-name", "away", "--max-rounds", "3")
    search = ("--model", "m", "--base-url", url, "--world-model", "off", "--branches", "1", "--no-early-stop")
    return [sys.executable, "-m", "ksearch_async", *task, *search, *more]


def environment() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_")}
    return {**clean, "TERM": "xterm", "PYTHONWARNINGS": "default"}


@asynccontextmanager
async def served(folder: Path, *, held_from: int) -> AsyncIterator[tuple[Endpoint, Answers]]:
    task_in(folder)
    answers = Answers(held_from)
    async with endpoint(answers) as server:
        yield server, answers


async def ksearch(*words: str, cwd: Path) -> CompletedProcess[bytes]:
    words = (sys.executable, "-m", "ksearch_async", *words)
    with anyio.fail_after(LONGEST_S):
        return await anyio.run_process(words, cwd=cwd, env=environment(), check=False)


async def detached(folder: Path, url: str) -> dict[str, object]:
    with anyio.fail_after(LONGEST_S):
        done = await anyio.run_process(command(url, "--detach", "--json"), cwd=folder, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


async def until_gone(pid: int) -> None:
    """Wait for a process that is nobody's child here; one that its new parent has not buried yet is gone, too."""
    with anyio.fail_after(LONGEST_S):
        while is_there(pid):  # noqa: ASYNC110 - nobody else's child tells us
            await anyio.sleep(0.05)


def is_there(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def family(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


class Lines:
    """What a process says."""

    def __init__(self, stream: ByteReceiveStream | None) -> None:
        assert stream is not None
        self._stream = BufferedByteReceiveStream(stream)

    async def until(self, start: str) -> str:
        """Return the next line that begins so."""
        with anyio.fail_after(LONGEST_S):
            while True:
                line = (await self._stream.receive_until(b"\n", 1 << 20)).decode()
                if line.startswith(start):
                    return line


async def test_a_search_goes_on_when_its_terminal_is_gone_and_leaves_no_process(tmp_path: Path) -> None:
    async with served(tmp_path, held_from=1) as (server, answers):
        main, side = pty.openpty()
        begun, code = os.pipe()
        words = [sys.executable, "-c", ON_A_TERMINAL, str(side), str(code), *command(server.url, "--detach")]
        shell = await anyio.open_process(
            words, cwd=tmp_path, env=environment(), stdin=None, stdout=None, stderr=None, pass_fds=(side, code)
        )
        os.close(side)
        os.close(code)
        with anyio.fail_after(LONGEST_S):
            assert await anyio.to_thread.run_sync(os.read, begun, 16) == b"0"
        os.close(begun)
        told = (await anyio.to_thread.run_sync(os.read, main, 1 << 16)).decode()
        pid = int(told.partition("process ")[2].split()[0])
        assert "ksearch watch away" in told
        assert "ksearch stop away" in told
        os.close(main)
        with anyio.fail_after(LONGEST_S):
            await shell.wait()
        started = family(pid)
        answers.may.set()
        for process in started:
            await until_gone(process)
    folder = RunFolder(tmp_path / "runs" / "away")
    chronicle = read_run(folder)
    assert chronicle.finished is not None
    assert chronicle.finished.stopped_by == "rounds"
    output = (folder.path / "output.log").read_text()
    assert output.startswith("task       initial")
    assert "rounds     3 of 3" in output


async def test_what_keeps_a_run_from_beginning_is_the_commands_own_error(tmp_path: Path) -> None:
    done = await ksearch("run", "none.py", "--detach", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith("error: cannot read problem file 'none.py'")
    assert not (tmp_path / "runs").exists()


async def test_a_view_of_what_is_detached_is_refused(tmp_path: Path) -> None:
    done = await ksearch("run", "rmsnorm_silu", "--detach", "--view", "live", cwd=tmp_path)
    assert done.returncode == 2
    assert b"ksearch watch RUN shows it live" in done.stderr


async def test_ctrl_c_before_it_has_begun_ends_the_start_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(
        FAILING_PROBLEM.replace('raise RuntimeError("no inputs today")', "import time; time.sleep(1000)")
    )
    words = [sys.executable, "-m", "ksearch_async", "run", "hanging.py", "--detach"]
    async with await anyio.open_process(words, cwd=tmp_path, env=environment(), stdout=PIPE, stderr=PIPE) as process:
        await Lines(process.stderr).until("checking the reference ...")
        started = family(process.pid)
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(LONGEST_S):
            assert await process.wait() == 130
    for each in started:
        await until_gone(each)
    assert not os.listdir(tmp_path / "runs")  # noqa: PTH208 - anyio.Path would be one more thread


async def test_a_detached_run_is_watched_stopped_and_resumed_as_any_other(tmp_path: Path) -> None:
    async with served(tmp_path, held_from=1) as (server, answers):
        told = await detached(tmp_path, server.url)
        pid, path = told["pid"], told["path"]
        assert isinstance(pid, int)
        assert (told["kind"], told["run"], path) == ("detached", "away", str(tmp_path / "runs" / "away"))
        words = [sys.executable, "-m", "ksearch_async", "watch", "away", "--json"]
        async with await anyio.open_process(words, cwd=tmp_path, env=environment(), stdout=PIPE) as watcher:
            lines = Lines(watcher.stdout)
            assert '"run_id":"away"' in await lines.until('{"kind":"run.started"')
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop, tmp_path)
                assert '"stopped_by":"interrupted"' in await lines.until('{"kind":"run.stopping"')
                answers.may.set()
            await lines.until('{"kind":"run.finished"')
            with anyio.fail_after(LONGEST_S):
                assert await watcher.wait() == 130
        await until_gone(pid)
        done = await ksearch("resume", "away", "--detach", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        seen = await ksearch("watch", "away", cwd=tmp_path)
        assert seen.returncode == 0, seen.stderr
        assert "resumed    away after" in seen.stdout.decode()
        assert "rounds     3 of 3" in seen.stdout.decode()
        await until_gone(json.loads(done.stdout)["pid"])


async def _stop(folder: Path) -> None:
    done = await ksearch("stop", "away", cwd=folder)
    assert done.returncode == 0, done.stderr


async def test_ctrl_c_ends_the_view_and_not_the_run(tmp_path: Path) -> None:
    async with served(tmp_path, held_from=0) as (server, answers):
        pid = (await detached(tmp_path, server.url))["pid"]
        assert isinstance(pid, int)
        words = [sys.executable, "-m", "ksearch_async", "watch", "away", "--view", "plain"]
        async with await anyio.open_process(
            words, cwd=tmp_path, env=environment(), stdout=PIPE, stderr=PIPE
        ) as watcher:
            await Lines(watcher.stdout).until("run        away")
            watcher.send_signal(signal.SIGTERM)
            with anyio.fail_after(LONGEST_S):
                assert await watcher.wait() == 130
            await Lines(watcher.stderr).until("run away goes on without this view")
        assert psutil.pid_exists(pid)
        answers.may.set()
        await until_gone(pid)
    assert read_run(RunFolder(tmp_path / "runs" / "away")).finished is not None


@pytest.mark.long
async def test_a_run_that_was_killed_is_told_to_its_end_and_said_to_have_nobody(tmp_path: Path) -> None:
    async with served(tmp_path, held_from=0) as (server, _answers):
        pid = (await detached(tmp_path, server.url))["pid"]
        assert isinstance(pid, int)
        started = family(pid)
        os.kill(pid, signal.SIGKILL)
        for process in started:
            await until_gone(process)
    seen = await ksearch("watch", "away", cwd=tmp_path)
    assert seen.returncode == 130
    assert "ksearch resume away" in seen.stderr.decode()
    assert "rounds     0 of 3" in seen.stdout.decode()
