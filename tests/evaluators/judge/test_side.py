"""Whether a side that does not answer works, waits, or is kept from working."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evaluators.judge.cores import cpu_ns
from evaluators.judge.side import Line, NoAnswerError, cpu_s, is_starved, queued, stat_fields
from evaluators.runners.base import FRAME, MAGIC

BUSY = "import os; print(flush=True); os.sched_setaffinity(0, {core})\nwhile True: pass"
IDLE = BUSY.replace("\n", "; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n")
LIMIT_S = 0.3

ANSWERS = """
import socket, sys, threading
control = socket.socket(fileno=int(sys.argv[1]))
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
while frame := control.recv(64):
    control.send(frame)
"""
"""A side that answers, and has a thread that never rests."""


@contextmanager
def program(code: str) -> Iterator[int]:
    """Run a program that says when it has begun."""
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-S", "-c", code.replace("{core}", f"{{{core}}}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def starved_after_the_limit(pid: int) -> bool:
    used_s, before, until = cpu_s(pid), queued(pid), time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        os.sched_yield()
    return is_starved(pid, used_s, before, LIMIT_S)


def test_a_process_that_waits_is_not_starved() -> None:
    with program("print(flush=True); input()") as pid:
        assert not starved_after_the_limit(pid)


def test_a_process_that_gives_way_to_another_on_its_core_is_starved() -> None:
    with program(IDLE) as modest, program(BUSY):
        assert starved_after_the_limit(modest)


def test_a_process_that_has_had_half_of_a_core_is_not_starved() -> None:
    with program(BUSY) as greedy:
        used_s, before = cpu_s(greedy), queued(greedy)
        while cpu_s(greedy) - used_s < LIMIT_S / 2:
            os.sched_yield()
        assert not is_starved(greedy, used_s, before, LIMIT_S)


SLEEPS = """
import os, time
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print(flush=True)
while True:
    time.sleep(0.1)
    end = time.monotonic() + 0.02
    while time.monotonic() < end: pass
"""
"""On another core than the one that whoever looks keeps busy."""


def test_a_process_that_slept_and_wants_a_core_when_it_is_looked_at_was_not_starved() -> None:
    with program(SLEEPS) as sleeper:
        for _ in range(20):
            used_s, before, until = cpu_s(sleeper), queued(sleeper), time.monotonic() + LIMIT_S
            while time.monotonic() < until or stat_fields(Path(f"/proc/{sleeper}/stat"))[0] != "R":
                os.sched_yield()
            said, waited_ns = is_starved(sleeper, used_s, before, LIMIT_S), queued(sleeper)[str(sleeper)][0]
            if waited_ns - before[str(sleeper)][0] < LIMIT_S * 1e9 / 4:  # others left it the core
                assert not said
                return
        pytest.fail("its core was taken all the time")


def test_a_process_that_is_gone_is_not_starved() -> None:
    with program("print(flush=True); input()") as pid:
        pass
    assert not is_starved(pid, 0.0, {}, LIMIT_S)


@contextmanager
def side(*, stops: bool = True) -> Iterator[tuple[Line, int]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-S", "-c", ANSWERS, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), process_group=0)
    line = Line(ours, process.pid, 7, stops=stops)
    try:
        yield line, process.pid
    finally:
        process.kill()
        process.wait()
        line.close()


def test_nothing_is_read_of_a_process_while_its_call_is_timed() -> None:
    touched: list[str] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir"} and is_timed:
            touched.append(f"{event} {arguments[0]}")

    is_timed = False
    sys.addaudithook(note)
    with side(stops=False) as (line, _):
        line.exchange(1, limit_s=30)
        is_timed = True
        line.exchange(1, limit_s=30)
        is_timed = False
    assert touched == []


def test_a_side_that_is_stopped_between_its_answers_is_believed() -> None:
    with side() as (line, _):
        for _ in range(3):
            assert line.exchange(1, limit_s=30).elapsed_ns > 0


def test_the_outputs_are_looked_at_before_the_side_is_stopped_and_a_long_look_is_told() -> None:
    seen: list[int] = []

    with side() as (line, pid):

        def look() -> None:
            before_ns = cpu_ns(pid)
            while cpu_ns(pid) - before_ns < 5_000_000:
                os.sched_yield()
            seen.append(cpu_ns(pid) - before_ns)

        line.exchange(1, limit_s=30)
        answer = line.exchange(1, limit_s=30, look=look)
    assert seen, "it was running while it was looked at"
    assert answer.after_ns > 4_000_000


def test_a_side_that_was_continued_by_somebody_else_is_found_out() -> None:
    kinds: list[str] = []
    with side() as (line, pid):
        for _ in range(4):
            try:
                line.exchange(1, limit_s=30)
            except NoAnswerError as error:
                kinds.append(error.kind)
                break
            rested_ns = cpu_ns(pid)
            os.killpg(pid, signal.SIGCONT)
            while cpu_ns(pid) - rested_ns < 5_000_000:
                os.sched_yield()
    assert kinds == ["went on"]


def test_an_answer_that_is_there_before_the_request_is_none() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, program("print(flush=True); input()") as pid:
        line = Line(ours, pid, 7, stops=False)
        theirs.send(FRAME.pack(MAGIC, 1, 1, 7, 0, 0))
        with pytest.raises(NoAnswerError) as raised:
            line.exchange(1, limit_s=30)
        line.close()
    assert raised.value.kind == "bad frame"
