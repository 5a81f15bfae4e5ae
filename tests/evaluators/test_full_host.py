"""A host without room: full disks, a read-only store, no file descriptors left. Real ones, in namespaces of their own.

Each program below judges or builds once and prints what came of it in a line. It runs in a user and mount namespace,
where it may mount small file systems that nobody else sees.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRELUDE = """
import os, resource, sys, tempfile
from pathlib import Path
import anyio
from evaluators.build.builder import LocalBuilder
from evaluators.local import LocalEvaluator
from evaluators.hardware.target import probe_target
from messages.base import EvaluatorError
from messages.events import Built
from tests.evaluators.words import RIGHT, SMALL_TASK, build_job, cpp, evaluate_job

target, candidate = probe_target("cpp"), cpp(RIGHT)

async def built(store):
    try:
        return (await LocalBuilder(store).build(build_job(candidate, target))).outcome
    except EvaluatorError as error:
        return error

async def described(store):
    evaluator = LocalEvaluator(store, slots=1)
    try:
        return await evaluator.describe_task(SMALL_TASK, "cpp")
    except EvaluatorError as error:
        return error
    finally:
        await evaluator.aclose()

def say(outcome):
    print(type(outcome).__name__, str(outcome).replace(chr(10), " ")[:300], flush=True)
"""


def mounts_are_permitted() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    command = [unshare, "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def came_to(program: str, *, mounts: str = "") -> list[str]:
    """Return the lines that a program prints, run after some mounts.

    Args:
        program: Python, behind `PRELUDE`.
        mounts: shell commands.
    """
    code = PRELUDE + textwrap.dedent(program)
    inner = f'{mounts} exec "$0" -c "$1"'
    namespaces = ["unshare", "--user", "--map-root-user", "--mount"] if mounts else []
    done = subprocess.run(
        [*namespaces, "sh", "-ec", inner, sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


needs_mounts = pytest.mark.skipif(not mounts_are_permitted(), reason="no mounts in a namespace of our own here")


@needs_mounts
def test_a_store_without_room_for_a_build(tmp_path: Path) -> None:
    mounts = f"mount -t tmpfs -o size=16k tmpfs {tmp_path};"
    (line,) = came_to(f"say(anyio.run(built, Path({str(tmp_path)!r}) / 'store'))", mounts=mounts)
    assert line.startswith("EvaluatorError")
    assert "full" in line or "No space left" in line or "guard" in line


@needs_mounts
def test_a_store_that_can_only_be_read(tmp_path: Path) -> None:
    mounts = f"mount -t tmpfs tmpfs {tmp_path}; mount -o remount,ro {tmp_path};"
    (line,) = came_to(f"say(anyio.run(built, Path({str(tmp_path)!r}) / 'store'))", mounts=mounts)
    assert line.startswith("EvaluatorError")
    assert "Read-only file system" in line


@needs_mounts
def test_a_temporary_folder_without_room_for_a_judge(tmp_path: Path) -> None:
    mounts = f"mount -t tmpfs -o nr_inodes=1 tmpfs {tmp_path};"
    program = f"tempfile.tempdir = {str(tmp_path)!r}\nsay(anyio.run(described, Path('/nonexistent')))"
    (line,) = came_to(program, mounts=mounts)
    assert line.startswith("EvaluatorError cannot start a judge: [Errno 28] No space left on device")


def test_no_file_descriptors_left() -> None:
    # From a few that are free to enough of them: whatever is the first that cannot be had.
    program = """
        async def all_limits():
            for spare in (0, 1, 2, 4, 6, 8, 12):
                used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
                resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, 4096))
                try:
                    with tempfile.TemporaryDirectory() as folder:
                        store = Path(folder)
                        outcome = await built(store)
                        if isinstance(outcome, Built):
                            return say(outcome)
                        say(outcome)
                except OSError as error:
                    print("EvaluatorError of the test itself", error)
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            for spare in (0, 1, 2, 3):
                used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
                resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, 4096))
                try:
                    say(await described(Path("/nonexistent")))
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))

        anyio.run(all_limits)
    """
    lines = came_to(program)
    assert len(lines) >= 2
    assert lines[0].startswith("EvaluatorError")
    assert {line.split()[0] for line in lines} <= {"EvaluatorError", "Built", "TaskDescription"}
