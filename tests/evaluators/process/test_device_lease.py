"""Who may time: one process of the host, and who waits is told for whom."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from actors.worker.member import Member
from evaluators.process import device_lease as leases
from evaluators.process.device_lease import HostLease, waits
from ksearch_async.evaluation import judging
from ksearch_async.evaluation.judging import saying_waits
from messages.base import EvaluatorError
from tests.actors.words import memory_bus, presence

pytestmark = pytest.mark.anyio

HOLDS = """
import sys, anyio
from pathlib import Path
from evaluators.process.device_lease import HostLease
async def main():
    async with HostLease("cpu", folder=Path(sys.argv[1])).hold("run-7"):
        print("held", flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@contextmanager
def other_process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process hold the lease."""
    command = [sys.executable, "-c", HOLDS, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def test_a_lease_of_the_host_has_one_holder_also_between_evaluators(tmp_path: Path) -> None:
    one, other = HostLease("test", folder=tmp_path), HostLease("test", folder=tmp_path)
    async with one:
        with anyio.move_on_after(0.05) as scope:
            async with other:
                pytest.fail("held twice")
        assert scope.cancelled_caught
    with anyio.fail_after(1):
        async with other:
            pass


async def test_leases_of_different_devices_are_independent(tmp_path: Path) -> None:
    with anyio.fail_after(1):
        async with HostLease("test-a", folder=tmp_path), HostLease("test-b", folder=tmp_path):
            pass


async def test_a_holder_is_known_by_process_user_command_run_and_since_when(tmp_path: Path) -> None:
    lease = HostLease("cpu", folder=tmp_path)
    assert lease.holder() is None
    with other_process(tmp_path) as process:
        holder = lease.holder()
        assert holder is not None
        assert (holder.pid, holder.run_id) == (process.pid, "run-7")
        assert holder.since is not None
        for word in (f"process {process.pid} of user ", "python", "run run-7", "since 20", f"kill {process.pid}"):
            assert word in str(holder)
        process.kill()
        process.wait()
        with anyio.fail_after(1):
            async with lease:
                assert lease.holder() is not None


async def test_nobody_is_named_a_holder_by_what_somebody_has_written(tmp_path: Path) -> None:
    with other_process(tmp_path) as process:
        (tmp_path / "ksearch-lease-cpu").write_text('{"pid": 1, "run_id": "yours", "since": "2020-01-01T00:00:00Z"}')
        holder = HostLease("cpu", folder=tmp_path).holder()
    assert holder is not None
    assert (holder.pid, holder.run_id, holder.since) == (process.pid, "", None)


async def test_the_wait_for_one_holder_is_bounded_and_says_whose_the_lease_is(tmp_path: Path) -> None:
    lease = HostLease("cpu", folder=tmp_path, patience_s=0.1)
    with other_process(tmp_path) as process, anyio.fail_after(10):
        with pytest.raises(
            EvaluatorError, match=rf"lease of cpu is held for more than 0.1 s by process {process.pid} "
        ):
            await lease.__aenter__()
        process.kill()
        process.wait()
        async with lease:
            pass


async def test_who_waits_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "_SOON_S", 0.0)
    monkeypatch.setattr(judging, "_LOOK_S", 0.01)
    assert waits() == ()
    told: list[str] = []
    with other_process(tmp_path) as process, anyio.fail_after(10):
        named = f"the timing lease of cpu, held by process {process.pid} of user "
        async with anyio.create_task_group() as group:
            group.start_soon(HostLease("cpu", folder=tmp_path).__aenter__)
            while not waits():
                await anyio.lowlevel.checkpoint()
            assert waits()[0].startswith(named)
            member = Member(memory_bus(), presence())
            assert member.presence.detail.startswith(f"waits for {named}")
            async with saying_waits(told.append):
                while not told:
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert waits() == ()
    assert [one.startswith(f"waiting for {named}") for one in told] == [True]


async def test_a_file_that_is_no_plain_file_is_refused_and_said(tmp_path: Path) -> None:
    (tmp_path / "ksearch-lease-cpu").symlink_to("/etc/passwd")
    with pytest.raises(EvaluatorError, match=r"remove .*ksearch-lease-cpu"):
        await HostLease("cpu", folder=tmp_path).__aenter__()


async def test_a_lock_on_a_file_that_was_removed_is_no_lease(tmp_path: Path) -> None:
    path = tmp_path / "ksearch-lease-cpu"
    path.touch()
    with path.open() as stale:
        fcntl.flock(stale, fcntl.LOCK_EX)
        path.unlink()
        with anyio.fail_after(1):
            async with HostLease("cpu", folder=tmp_path):
                assert path.exists()


async def test_all_users_may_take_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        async with HostLease("cpu", folder=tmp_path):
            assert (tmp_path / "ksearch-lease-cpu").stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)
