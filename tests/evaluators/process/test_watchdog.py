"""A judge that makes no progress at real-time priority is demoted, killed and told, and others go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.time.cores import threads_of
from evaluators.judge.time.urgency import is_permitted
from evaluators.local import LocalEvaluator
from evaluators.process import judge
from evaluators.process.device_lease import HostLease
from evaluators.process.watchdog import Pulse, demote, is_urgent
from messages.base import EvaluatorError
from messages.events import Built
from tests.evaluators.stalling import ENTRY
from tests.evaluators.words import RIGHT, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio
needs_priority = pytest.mark.skipif(not is_permitted(), reason="real-time priority is not permitted here")

WATCHED = """
import os, sys, time
from evaluators.process.watchdog import Pulse
pulse = Pulse(".")
pulse.beat()
print("begins", flush=True)
"""
GUARDED = """
import sys, msgspec
from evaluators.process import guard
from evaluators.process.guarded import GuardJob
job = GuardJob(command=(sys.executable, "-c", sys.argv[1]), watched=True, log_path="log")
sys.exit(guard.run(msgspec.to_builtins(job)))
"""


def guarded(folder: Path, program: str) -> str:
    """Run a watched program under a guard, and return the guard's report."""
    guard = subprocess.Popen(
        [sys.executable, "-c", GUARDED, WATCHED + program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    with guard.stdin, guard.stdout:
        report = guard.stdout.readline()
        assert guard.wait(timeout=60) == 0
    return report


def test_what_is_late_is_killed_and_what_rests_or_beats_is_not(tmp_path: Path) -> None:
    pulse = Pulse(str(tmp_path))
    assert not pulse.is_late
    pulse.beat(wait_s=-301)
    assert pulse.is_late
    pulse.beat()
    assert not pulse.is_late
    pulse.beat(wait_s=-301)
    pulse.rest()
    assert not pulse.is_late


@pytest.mark.quiet
@needs_priority
async def test_a_judge_that_spins_at_real_time_priority_is_killed_and_told_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = probe_target("cpp")
    built = (await LocalBuilder(tmp_path).build(build_job(cpp(RIGHT), target))).outcome
    assert isinstance(built, Built)
    job = evaluate_job(cpp(RIGHT), built.artifact_id, target)
    leases = [HostLease("cpu", folder=tmp_path) for _ in range(2)]
    other = LocalEvaluator(tmp_path, lease=leases[1])
    monkeypatch.setattr(judge, "_ENTRY", ENTRY)
    stalling = LocalEvaluator(tmp_path, lease=leases[0])
    said: list[str] = []
    ended_at: list[float] = []

    async def stall() -> None:
        with pytest.raises(EvaluatorError) as raised:
            await stalling.evaluate(replace(job, run_id="stalls"))
        said.append(str(raised.value))
        ended_at.append(time.monotonic())

    try:
        await other.evaluate(job)
        async with anyio.create_task_group() as group:
            group.start_soon(stall)
            while (holder := leases[0].holder()) is None or holder.run_id != "stalls":  # noqa: ASYNC110 - a lock tells nobody
                await anyio.sleep(0.01)
            stalled_at = time.monotonic()
            await other.evaluate(job)
            goes_on_s = time.monotonic() - stalled_at
        assert said == ["the judge made no progress; its watchdog demoted and killed it"]
        assert ended_at[0] - stalled_at < 10
        assert goes_on_s < 15
    finally:
        await stalling.aclose()
        await other.aclose()


@pytest.mark.long
@needs_priority
def test_threads_of_a_side_that_a_judge_has_named_are_demoted_as_well(tmp_path: Path) -> None:
    side = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        os.sched_setscheduler(side.pid, os.SCHED_RR, os.sched_param(1))
        report = guarded(
            tmp_path,
            f"pulse.name_urgent([{side.pid}])\n"
            "os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))\nwhile True: pass",
        )
        assert '"how": "stalled"' in report
        assert not is_urgent(side.pid)
    finally:
        side.kill()
        side.wait()


@pytest.mark.quiet
@pytest.mark.long
@needs_priority
def test_who_is_at_real_time_priority_again_and_again_and_shows_progress_is_left_alone(tmp_path: Path) -> None:
    report = guarded(
        tmp_path,
        "for _ in range(12):\n"
        "    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2)); time.sleep(0.4); pulse.beat()\n",
    )
    assert '"how": "ended"' in report


@needs_priority
def test_all_threads_of_what_is_killed_are_demoted_first(tmp_path: Path) -> None:
    from evaluators.process.guard import _let_it_end  # noqa: PLC0415 - what a kill does before it kills cannot be seen after it

    program = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    process = subprocess.Popen([sys.executable, "-c", f"{program}print(flush=True); time.sleep(60)"], stdout=-1)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        for thread in threads_of(process.pid):
            os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
        _let_it_end(process.pid)
        assert [is_urgent(thread) for thread in threads_of(process.pid)] == [False, False]
        demote(process.pid)
        process.kill()
        process.wait()
