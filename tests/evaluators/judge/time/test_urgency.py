"""Real-time priority lasts for timed calls, and nothing that may wait for others happens meanwhile."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.candidate.side import Line, NoAnswerError
from evaluators.judge.protocol import (
    HEADER_BYTES,
    Artifact,
    FromJudge,
    Judged,
    Limits,
    Open,
    Time,
    ToJudge,
    body_bytes,
    decode_from_judge,
    encode_frame,
)
from evaluators.judge.time.cores import threads_of
from evaluators.judge.time.urgency import is_permitted
from messages.events import Built
from tests.evaluators.words import SMALL_TASK, before, build_job, cpp

needs_priority = pytest.mark.skipif(not is_permitted(), reason="real-time priority is not permitted here")

TWO_THREADS = """
import socket, sys, threading
control = socket.socket(fileno=int(sys.argv[1]))
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
while frame := control.recv(64):
    if frame[4] == 1: control.send(frame)
"""
"""A side with a thread that never rests; it answers operation 1."""


@contextmanager
def urgent_side() -> Iterator[tuple[Line, int]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-S", "-c", TWO_THREADS, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), process_group=0)
    line = Line(ours, process.pid, 7)
    line.exchange(1, limit_s=30)
    line.is_urgent = True
    try:
        yield line, process.pid
    finally:
        process.kill()
        process.wait()
        line.close()


def classes(pid: int) -> set[int]:
    """Return the scheduling classes of a process's threads and of this thread."""
    return {os.sched_getscheduler(thread) for thread in (*threads_of(pid), threading.get_native_id())}


@needs_priority
def test_a_timed_call_alone_has_priority_all_threads_of_its_side_and_the_judges_own() -> None:
    with urgent_side() as (line, pid):
        seen: list[set[int]] = []
        line.exchange(1, limit_s=30, is_timed=True, take=lambda: seen.append(classes(pid)))
        assert seen == [{os.SCHED_RR | os.SCHED_RESET_ON_FORK}]
        assert classes(pid) == {os.SCHED_OTHER}
        line.exchange(1, limit_s=30, take=lambda: seen.append(classes(pid)))
        assert seen[1:] == [{os.SCHED_OTHER}]


@needs_priority
def test_of_the_judge_its_own_thread_alone_has_priority() -> None:
    event = threading.Event()
    other = threading.Thread(target=event.wait)
    other.start()
    with urgent_side() as (line, _):
        seen: list[int] = []
        line.exchange(
            1, limit_s=30, is_timed=True, take=lambda: seen.append(os.sched_getscheduler(other.native_id or 0))
        )
    event.set()
    other.join()
    assert seen == [os.SCHED_OTHER]


@needs_priority
def test_a_side_that_does_not_answer_has_no_priority_any_more_nor_has_the_judge() -> None:
    with urgent_side() as (line, pid):
        with pytest.raises(NoAnswerError, match="timed out"):
            line.exchange(2, limit_s=0.2, is_timed=True)
        assert classes(pid) == {os.SCHED_OTHER}


@needs_priority
def test_priority_ends_also_where_taking_the_outputs_fails() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with urgent_side() as (line, pid):
        with pytest.raises(ZeroDivisionError):
            line.exchange(1, limit_s=30, is_timed=True, take=fail)
        assert classes(pid) == {os.SCHED_OTHER}


TRACED = """
import atexit, json, os, subprocess, sys
from evaluators.judge import protocol
from evaluators.judge.candidate import side
calls, urgent, raised = {}, [], []
def note(name):
    calls[name] = calls.get(name, 0) + 1
    if os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK != os.SCHED_OTHER:
        urgent.append(name)
def hook(event, arguments):
    if event.startswith(("os.", "subprocess.", "socket.", "shutil.", "tempfile.")) or event == "open":
        if event not in {"os.kill", "os.killpg"}:
            note(event if event != "open" else "open " + str(arguments[0])[:5])
def wrapped(module, name, is_harmless=lambda arguments: False):
    original = getattr(module, name)
    def call(*arguments, **named):
        if not is_harmless(arguments):
            note(name)
        return original(*arguments, **named)
    setattr(module, name, call)
for name in ("waitpid", "wait4", "wait", "sched_setaffinity", "listdir", "scandir"):
    wrapped(os, name)
# A look at a state, which reaps nothing.
wrapped(os, "waitid", lambda arguments: arguments[2] & os.WNOWAIT and arguments[2] & os.WNOHANG)
for name in ("send", "receive"):
    wrapped(protocol.JudgeChannel, name)
set_class = os.sched_setscheduler
def setting(thread, policy, parameters):
    raised.append(policy)
    return set_class(thread, policy, parameters)
os.sched_setscheduler = setting
sys.addaudithook(hook)
from evaluators.judge.service import serve
serve(int(sys.argv[1]))
print(json.dumps([calls, sorted(set(urgent)), sum(bool(policy & os.SCHED_RR) for policy in raised)]))
sys.stdout.flush()
os._exit(0)
"""
"""A judge that tells which calls it made, which of them at real-time priority, and how often it gave that."""


def ask(channel: socket.socket, message: ToJudge) -> FromJudge:
    channel.sendall(encode_frame(message))
    header = channel.recv(HEADER_BYTES, socket.MSG_WAITALL)
    return decode_from_judge(channel.recv(body_bytes(header), socket.MSG_WAITALL))


def traced(folder: Path, artifacts: list[Artifact]) -> tuple[list[FromJudge], bytes]:
    """Have a traced judge time candidates. Returns its answers, and what it tells of itself."""
    limits = Limits(call_s=0.5, call_slowdown=1.0, memory_bytes=1 << 30)
    ours, theirs = socket.socketpair()
    with theirs:
        judge = subprocess.Popen(
            [sys.executable, "-c", TRACED, str(theirs.fileno())],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            pass_fds=(theirs.fileno(),),
            stdout=subprocess.PIPE,
        )
    with ours:
        ask(ours, Open(task=SMALL_TASK, language="cpp", limits=limits, work="time", device="cpu", baseline=""))
        verdicts = [ask(ours, Time(artifact=artifact, purpose="screen")) for artifact in artifacts]
    said, _ = judge.communicate(timeout=60)
    return verdicts, said


@pytest.mark.quiet
@pytest.mark.anyio
@needs_priority
async def test_a_judge_that_times_never_waits_for_others_at_real_time_priority(tmp_path: Path) -> None:
    """What has threads of its own, hangs, or dies in a timed call is timed like any other, and so is what is right."""
    target = probe_target("cpp")
    dying = "static int calls; if (++calls == 9) "
    texts = [before("usleep(200);"), before(f"{dying}abort();"), before(f"{dying}for (;;) {{}}")]
    builder = LocalBuilder(tmp_path / "store")
    artifacts = []
    for text in texts:
        built = await builder.build(build_job(cpp(text), target))
        assert isinstance(built.outcome, Built)
        product = next((tmp_path / "store" / built.outcome.artifact_id).glob("*.so"))
        artifacts.append(Artifact(product=str(product), entry_point="ksearch_run"))
    verdicts, said = traced(tmp_path, artifacts)
    calls, urgent, raised = json.loads(said)
    assert all(isinstance(verdict, Judged) for verdict in verdicts)
    assert urgent == []
    assert raised > 100, "no call was timed with priority"
    assert {"os.fork", "open /proc", "listdir", "waitpid", "send", "receive"} <= calls.keys(), calls
