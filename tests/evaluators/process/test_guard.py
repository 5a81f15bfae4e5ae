"""The guard: limits, output, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
import psutil  # type: ignore[import-untyped]
import pytest

from evaluators.process.guarded import GUARD, GuardJob, GuardReport, plain_environment, run_guarded
from tests.orphans import still_running

pytestmark = pytest.mark.anyio

ESCAPES = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  time.sleep(600)\n os._exit(0)\n"


async def run(tmp_path: Path, code: str, **limits: object) -> GuardReport:
    job = GuardJob(command=(sys.executable, "-S", "-c", code), **limits)  # type: ignore[arg-type]
    return await run_guarded(job, cwd=tmp_path, environment=plain_environment())


def living(marker: Path) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cwd", "status"])
        if process.info["cwd"] == str(marker) and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


async def test_a_command_that_ends_is_reported_with_its_code_and_its_cpu_time(tmp_path: Path) -> None:
    report = await run(tmp_path, "sum(range(3_000_000)); raise SystemExit(3)")
    assert (report.how, report.exit_code, report.signal) == ("ended", 3, None)
    assert report.cpu_s > 0.01


async def test_a_signal_is_reported_as_one(tmp_path: Path) -> None:
    report = await run(tmp_path, "import os; os.abort()")
    assert (report.exit_code, report.signal) == (None, signal.SIGABRT)


async def test_a_command_that_hangs_is_stopped_at_its_limit(tmp_path: Path) -> None:
    report = await run(tmp_path, "import time; time.sleep(600)", wall_s=0.3)
    assert report.how == "timed_out"
    assert report.wall_s < 2


async def test_output_beyond_the_cap_is_dropped_and_does_not_block(tmp_path: Path) -> None:
    report = await run(tmp_path, "print('x' * 5_000_000)", log_path="log", log_bytes=1000)
    assert report.exit_code == 0
    assert report.log_cut
    assert (tmp_path / "log").stat().st_size == 1000


async def test_memory_beyond_the_limit_is_refused_to_the_command(tmp_path: Path) -> None:
    report = await run(tmp_path, "bytearray(1 << 30)", memory_bytes=256 << 20, log_path="log")
    assert report.exit_code == 1
    assert "MemoryError" in (tmp_path / "log").read_text()


async def test_a_grandchild_in_a_session_of_its_own_ends_with_the_command(tmp_path: Path) -> None:
    report = await run(tmp_path, ESCAPES)
    assert report.undying == ()
    assert living(tmp_path) == []


async def test_cancelling_kills_the_command_and_its_descendants(tmp_path: Path) -> None:
    with anyio.move_on_after(0.5) as scope:
        await run(tmp_path, f"{ESCAPES}time.sleep(600)")
    assert scope.cancelled_caught
    assert living(tmp_path) == []


def test_a_killed_parent_takes_everything_along_and_its_scratch_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = f"{ESCAPES}print('up', flush=True); time.sleep(600)"
    job = GuardJob(command=(sys.executable, "-S", "-c", code), scratch=str(scratch), log_path="log")
    parent_code = (
        "import subprocess, sys, time;"
        f"subprocess.Popen([sys.executable, '-I', '-S', {str(GUARD)!r}, {msgspec.json.encode(job).decode()!r}],"
        "stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], cwd=tmp_path)
    wait_until(lambda: (tmp_path / "log").exists() and "up" in (tmp_path / "log").read_text())
    descendants = psutil.Process(parent.pid).children(recursive=True)
    assert len(descendants) >= 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    assert still_running(descendants) == []
    assert living(tmp_path) == []
    assert not scratch.exists()


def wait_until(condition: object, timeout_s: float = 10.0) -> None:
    """Poll for something that another process does."""
    assert callable(condition)
    import time  # noqa: PLC0415 - polling another process is the only way to see what it does

    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        os.sched_yield()


KEEPS = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
from evaluators.process.guard import become_subreaper, descendants_of, kill_descendants
become_subreaper()
kept = subprocess.Popen(["sh", "-c", "sleep 60 & echo started; wait"], stdout=subprocess.PIPE)
kept.stdout.readline()
subprocess.Popen(["sh", "-c", "sleep 60 & wait"])
below = descendants_of(kept.pid)
assert not kill_descendants(keep=frozenset({kept.pid}))
print(descendants_of(os.getpid()) == {kept.pid, *below}, len(below))
assert not kill_descendants()
print(len(descendants_of(os.getpid())))
"""


def test_all_is_killed_but_what_is_to_be_kept_with_all_below_it() -> None:
    root = str(Path(GUARD).parents[2])
    command = [sys.executable, "-S", "-c", KEEPS, root]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["True", "1", "0"]
